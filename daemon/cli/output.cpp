#include "cli/output.hpp"

#include <iostream>

#include "cli/show.hpp"
#include "cli/tensor_file.hpp"
#include "cli/tensor_text.hpp"

namespace shared_tensor::cli {

void check_output(const std::string& path) {
    if (path.empty() || path.ends_with(".npy") || path.ends_with(".safetensors") || path.ends_with(".json")) return;
    throw UsageError("--output " + path +
                     ": the name must end in .npy (a tensor), .safetensors (tensors by name) or .json (anything)");
}

void print_line(const std::string& text) {
    std::cout << text << '\n' << std::flush;
    if (!std::cout) throw UsageError("standard output cannot be written; is the disk full?");
}

void write_result(const CommandLine& line, const Dynamic& result) {
    if (line.output.ends_with(".npy")) {
        const auto tensor = only_tensor(result);
        if (!tensor)
            throw UsageError("--output " + line.output +
                             ": the result is not one tensor; write it to FILE.json: " + show(result));
        write_tensor(line.output, tensor);
        if (!line.json) std::cerr << line.output << ": " << tensor_title(tensor) << '\n';
    } else if (line.output.ends_with(".safetensors")) {
        const auto members = tensors_of(result);
        if (!members)
            throw UsageError("--output " + line.output +
                             ": the result is not an object of tensors; write it to FILE.json: " + show(result));
        write_tensors(line.output, *members);
        if (!line.json) std::cerr << line.output << ": " << members->size() << " tensors\n";
    } else if (!line.output.empty()) {
        write_text(line.output, compact(to_json(result)) + "\n");
    } else {
        print_line(line.json ? compact(to_json(result)) : show(result));
    }
    if (!result.value.objects.empty() && line.call.session.empty() && !line.json)
        std::cerr << "shared-tensor: the handle ends with this command; --session TOKEN (session.open) keeps it\n";
}

}  // namespace shared_tensor::cli
