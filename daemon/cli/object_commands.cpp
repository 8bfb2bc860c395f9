#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/show.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
}

std::string object_line(const Json& object) {
    const auto text = [&](const char* name) { return object.value(name, std::string()); };
    const auto age = std::chrono::milliseconds(object.value("age_ms", std::int64_t{0}));
    return padded(text("id"), 36) + padded(show_duration(age), 12) + padded(compact(object.value("uses", Json(0))), 7) +
           padded(text("owner"), 14) + text("type");
}

int release(const CommandLine& line) {
    const std::vector<std::string> ids(line.words.begin() + 1, line.words.end());
    const Json answer = to_json(connect(line).call<Dynamic>("object.release", named("ids", ids)));
    const auto released = answer.value("released", std::size_t{0});
    print_line(line.json ? compact(answer)
                         : std::to_string(released) + " of " + std::to_string(ids.size()) + " released");
    return released == ids.size() ? kOk : kFailed;
}

}  // namespace

int objects(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "release" && line.words.size() > 1) return release(line);
    require_words(line, 0, 0, "objects [release ID...]");
    const Json answer = to_json(connect(line).call<Dynamic>("object.list"));
    if (line.json) {
        print_line(compact(answer));
        return kOk;
    }
    std::string text =
        line.names ? "" : padded("ID", 36) + padded("AGE", 12) + padded("USES", 7) + padded("OWNER", 14) + "TYPE";
    const Json list = answer.value("objects", Json::array());
    for (const Json& object : list) {
        if (!text.empty()) text += '\n';
        text += line.names ? object.value("id", std::string()) : object_line(object);
    }
    print_line(text);
    return kOk;
}

}  // namespace shared_tensor::cli
