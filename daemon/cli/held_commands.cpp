// The commands for what clients hold: leases, and handles of objects.

#include <chrono>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/show.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

std::string lease_line(const Json& lease) {
    const auto text = [&](const char* name) { return lease.value(name, std::string()); };
    const auto number = [&](const char* name) { return lease.value(name, std::uint64_t{0}); };
    const auto time = [&](const char* name) { return show_duration(std::chrono::milliseconds(number(name))); };
    const std::string ends = lease.contains("expires_in_ms") ? time("expires_in_ms") : "with its client";
    return row({{text("id"), 36},
                {text("transport"), 11},
                {std::to_string(number("bytes")), 14},
                {time("age_ms"), 12},
                {ends, 18},
                {std::to_string(number("pid")), 9}},
               text("owner"));
}

std::string object_line(const Json& object) {
    const auto text = [&](const char* name) { return object.value(name, std::string()); };
    const auto age = std::chrono::milliseconds(object.value("age_ms", std::int64_t{0}));
    return row(
        {{text("id"), 36}, {show_duration(age), 12}, {compact(object.value("uses", Json(0))), 7}, {text("owner"), 14}},
        text("type"));
}

int revoke(const CommandLine& line) {
    const std::vector<std::string> ids(line.words.begin() + 1, line.words.end());
    if (ids.empty()) throw UsageError("use: shared-tensor leases revoke ID...");
    const auto answer = to_json(connect(line).call<Dynamic>("lease.revoke", named("leases", ids)));
    print_line(line.json ? compact(answer) : "revoked " + compact(answer["leases"]));
    return kOk;
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

int leases(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "revoke") return revoke(line);
    require_words(line, 0, 0, "leases, or leases revoke ID...");
    const Json page = to_json(connect(line).call<Dynamic>("lease.list", named("limit", line.limit)));
    print_list(line, page, "leases", "id",
               row({{"ID", 36}, {"TRANSPORT", 11}, {"BYTES", 14}, {"AGE", 12}, {"ENDS", 18}, {"PID", 9}}, "OWNER"),
               &lease_line);
    return kOk;
}

int objects(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "release" && line.words.size() > 1) return release(line);
    require_words(line, 0, 0, "objects [release ID...]");
    const Json page = to_json(connect(line).call<Dynamic>("object.list"));
    print_list(line, page, "objects", "id", row({{"ID", 36}, {"AGE", 12}, {"USES", 7}, {"OWNER", 14}}, "TYPE"),
               &object_line);
    return kOk;
}

}  // namespace shared_tensor::cli
