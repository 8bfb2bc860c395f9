#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

#include <shared_tensor/tensors.hpp>

#include "base/bytes/utf8.hpp"
#include "cli/commands.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::cli {

namespace {

/// Turns runtime errors of a file operation into UsageErrors: the user has to correct the file.
template <class Use>
auto with_file(const std::string& path, Use use) {
    try {
        return use();
    } catch (const RpcError&) {
        throw;
    } catch (const std::runtime_error& error) {
        const std::string what = error.what();
        throw UsageError(what.find(path) == std::string::npos ? path + ": " + what : what);
    }
}

std::string stem(const std::string& path) { return std::filesystem::path(path).stem().string(); }

std::string size_text(const codec::Json& info) { return show_bytes(info["bytes"].get<std::uint64_t>()); }

std::string kind_text(const codec::Json& info) {
    if (info.contains("members")) return "set of " + compact(info["members"]);
    std::string kind;
    for (const auto& count : info["shape"])
        kind.append(kind.empty() ? "" : ", ").append(compact(count));
    return info["dtype"].get<std::string>() + " [" + kind + ']';
}

codec::Json json_of(const NamedTensor& named) {
    codec::Json json{{"name", named.name()}, {"version", named.version()}};
    if (!named.metadata().empty()) json["metadata"] = named.metadata();
    if (!named.is_set()) {
        json["tensor"] = to_json(from_tensor(tensor::make_handle(named.tensor())));
        return json;
    }
    codec::Json& members = json["members"] = codec::Json::object();
    for (const std::string& name : named.names()) {
        const auto handle = tensor::make_handle(named[name]);
        members[name] = {{"dtype", name_of(handle->tensor().dtype())}, {"shape", tensor::shape_of(handle)}};
    }
    return json;
}

std::string text_of(const NamedTensor& named) {
    std::string text = named.name() + ", version " + std::to_string(named.version());
    for (const auto& [key, value] : named.metadata())
        text += "\n  " + printable(key) + ": " + printable(value);
    if (!named.is_set()) return text + '\n' + show(from_tensor(tensor::make_handle(named.tensor())));
    for (const std::string& name : named.names())
        text += "\n" + row({{printable(name), 40}, {tensor_title(tensor::make_handle(named[name])), 0}});
    return text;
}

void write_named(const CommandLine& line, const NamedTensor& named) {
    if (line.output.ends_with(".npy") && named.is_set())
        throw UsageError("--output " + line.output + ": this is a set; write it to FILE.safetensors, or get " +
                         named.name() + "/MEMBER");
    if (line.output.ends_with(".npy")) {
        write_tensor(line.output, tensor::make_handle(named.tensor()));
    } else if (line.output.ends_with(".safetensors")) {
        with_file(line.output, [&] { named.save(line.output); });
    } else {
        write_text(line.output, compact(json_of(named)) + "\n");
    }
    if (!line.json) std::cerr << line.output << ": " << named.name() << ", version " << named.version() << '\n';
}

/// The client shares no memory with the server, and no transport is required: files are then sent in parallel parts.
bool is_far(const CommandLine& line, const Client& client) {
    if (!line.call.require.empty()) return false;
    const auto transports = client.transports();
    return std::none_of(transports.begin(), transports.end(),
                        [](const TransportInfo& transport) { return transport.name == "shm" && transport.usable; });
}

Published put_one(const CommandLine& line, const Client& client, const std::string& path) {
    const NamedTensors names(client);
    const std::string name = line.name.empty() ? stem(path) : line.name;
    if (!is_utf8(name)) throw UsageError("the name of " + path + " is not UTF-8: give one with --name");
    const PutOptions options{line.if_version, {}, line.base, line.as_version};
    const bool far = is_far(line, client);
    if (path.ends_with(".safetensors"))
        return with_file(path, [&] {
            return far ? names.push_file(name, path, {.put = options, .resume = true})
                       : names.put_file(name, path, options);
        });
    if (path.ends_with(".npy")) {
        const auto handle = only_tensor(read_tensor(path));
        const TensorRef& tensor = handle->tensor();
        return far ? names.push(name, tensor, {.put = options, .resume = true}) : names.put(name, tensor, options);
    }
    throw UsageError(path + ": the name must end in .safetensors (a set) or .npy (a tensor)");
}

}  // namespace

int put(const CommandLine& line) {
    const Published made = put_one(line, connect(line), line.words.front());
    print_line(line.json ? compact({{"name", made.name}, {"version", made.version}, {"bytes", made.bytes}})
                         : made.name + ", version " + std::to_string(made.version) + ", " + show_bytes(made.bytes));
    return kOk;
}

int get(const CommandLine& line) {
    const Client client = connect(line);
    const NamedTensors names(client);
    const std::string& name = line.words.front();
    const bool far = is_far(line, client);
    PullOptions options;
    if (far && !line.previous.empty())
        options.previous = with_file(line.previous, [&] { return NamedTensor::load(line.previous); });
    if (line.swarm) options.swarm = SwarmOptions{.linger = line.linger};
    const NamedTensor named = far ? names.pull(name, options) : names.get(name);
    if (!line.output.empty()) {
        write_named(line, named);
    } else {
        print_line(line.json ? compact(json_of(named)) : text_of(named));
    }
    return kOk;
}

int tensors(const CommandLine& line) {
    const auto list = NamedTensors(connect(line)).list(line.words.empty() ? "" : line.words.front());
    codec::Json json = codec::Json::array();
    for (const NamedTensorInfo& info : list) {
        codec::Json one{{"name", info.name},
                        {"owner", info.owner},
                        {"version", info.version},
                        {"bytes", info.bytes},
                        {"published_at", info.published_at}};
        if (info.is_set) one["members"] = info.members;
        if (!info.is_set) one.update({{"dtype", info.dtype}, {"shape", info.shape}});
        json.push_back(std::move(one));
    }
    print_list(line, {{"tensors", std::move(json)}}, "tensors", "name",
               {{"NAME", 32, "name"},
                {"VERSION", 9, "version"},
                {"SIZE", 11, &size_text},
                {"PUBLISHED", 26, "published_at"},
                {"WHAT", 0, &kind_text}});
    return kOk;
}

int remove_tensor(const CommandLine& line) {
    const codec::Json gone =
        ask(line, "tensor.delete", named("name", line.words.front()), named("if_version", line.if_version));
    print_line(line.json ? compact(gone)
                         : line.words.front() + ", version " + compact(gone.value("version", codec::Json())) +
                               ", deleted; tensors that were read before stay valid");
    return kOk;
}

int watch(const CommandLine& line) {
    const std::string& name = line.words.front();
    const NamedTensors names(connect_patiently(line));
    const auto now = std::chrono::milliseconds(0);
    const std::uint64_t after = line.after ? *line.after : names.watch(name, 0, now).value_or(0);
    const auto version = names.watch(name, after, line.call.timeout.value_or(kForEver));
    if (!version)
        throw DeadlineExceeded(static_cast<int>(ErrorCode::deadline_exceeded), "Deadline exceeded", {},
                               "\"" + name + "\" still has no other version than " + std::to_string(after));
    print_line(line.json ? compact({{"name", name}, {"version", *version}})
                         : name + ", version " + std::to_string(*version));
    return kOk;
}

}  // namespace shared_tensor::cli
