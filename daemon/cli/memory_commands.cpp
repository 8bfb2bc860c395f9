#include <algorithm>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/show.hpp"
#include "transport_table.hpp"

namespace shared_tensor::cli {

namespace {

codec::Json to_json(const std::vector<TransportInfo>& transports) {
    codec::Json json = codec::Json::object();
    for (const TransportInfo& transport : transports) {
        json[transport.name] = {{"usable", transport.usable}};
        if (!transport.usable) json[transport.name]["reason"] = transport.reason;
    }
    return json;
}

std::string column(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

std::string lease_line(const codec::Json& lease) {
    const auto number = [&](const char* name) { return lease.value(name, std::uint64_t{0}); };
    const std::string ends = lease.contains("expires_in_ms")
                                 ? show_duration(std::chrono::milliseconds(number("expires_in_ms")))
                                 : "with its client";
    return column(lease.value("id", std::string()), 36) + column(lease.value("transport", std::string()), 11) +
           column(std::to_string(number("bytes")), 14) +
           column(show_duration(std::chrono::milliseconds(number("age_ms"))), 12) + column(ends, 18) +
           column(std::to_string(number("pid")), 9) + lease.value("owner", std::string());
}

int revoke(const CommandLine& line) {
    const std::vector<std::string> ids(line.words.begin() + 1, line.words.end());
    if (ids.empty()) throw UsageError("use: shared-tensor leases revoke ID...");
    const auto answer = cli::to_json(connect(line).call<Dynamic>("lease.revoke", named("leases", ids)));
    print_line(line.json ? compact(answer) : "revoked " + compact(answer["leases"]));
    return kOk;
}

}  // namespace

int doctor(const CommandLine& line) {
    require_words(line, 0, 1, "doctor [URL]");
    CommandLine there = line;
    if (!line.words.empty()) there.client.url = line.words.front();
    const Client client = connect(there);
    const auto trip = client.ping();
    const auto transports = client.transports();
    if (line.json) {
        print_line(compact(to_json(transports)));
        return kOk;
    }
    const ServerInfo info = client.info();
    std::string text = info.name + " " + info.version + " at " + client.url() + ", epoch " + info.epoch +
                       "\nround trip: " + show_duration(trip) + "\ntransports, from this process:\n" +
                       transport_table(transports);
    text.pop_back();
    print_line(text);
    return kOk;
}

int leases(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "revoke") return revoke(line);
    require_words(line, 0, 0, "leases, or leases revoke ID...");
    const auto page = cli::to_json(connect(line).call<Dynamic>("lease.list", named("limit", line.limit)));
    if (line.json) {
        print_line(compact(page));
        return kOk;
    }
    std::string text = line.names ? ""
                                  : column("ID", 36) + column("TRANSPORT", 11) + column("BYTES", 14) +
                                        column("AGE", 12) + column("ENDS", 18) + column("PID", 9) + "OWNER";
    for (const auto& lease : page.value("leases", codec::Json::array())) {
        if (!text.empty()) text += '\n';
        text += line.names ? lease.value("id", std::string()) : lease_line(lease);
    }
    print_line(text);
    return kOk;
}

}  // namespace shared_tensor::cli
