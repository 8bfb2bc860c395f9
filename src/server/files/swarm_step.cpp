#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes/check.hpp"
#include "net/message/text.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "server/files/files.hpp"
#include "server/methods/rejected.hpp"
#include "server/rpc/reply.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Json;

constexpr std::uint64_t kSmallestPiece = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostPieces = 4096;
constexpr std::size_t kKeySize = 32;  // of a relay's path: 128 random bits

std::uint64_t piece_bytes(std::uint64_t size) {
    return std::max(kSmallestPiece, std::bit_ceil((size + kMostPieces - 1) / kMostPieces));
}

const Json* member(const Json& body, const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
}

std::vector<std::uint64_t> numbers(const Json& body, const char* name) {
    std::vector<std::uint64_t> all;
    const Json* const list = member(body, name);
    if (list == nullptr) return all;
    if (!list->is_array()) reject(name, "a list of numbers of pieces", "something else");
    for (const Json& one : *list) {
        if (!one.is_number_unsigned()) reject(name, "a list of numbers of pieces", "something else in it");
        all.push_back(one.get<std::uint64_t>());
    }
    return all;
}

std::string text(const Json& body, const char* name) {
    const Json* const found = member(body, name);
    if (found != nullptr && !found->is_string()) reject(name, "a text", "something else");
    return found != nullptr ? found->get<std::string>() : std::string();
}

bool flag(const Json& body, const char* name) {
    const Json* const found = member(body, name);
    if (found != nullptr && !found->is_boolean()) reject(name, "true or false", "something else");
    return found != nullptr && found->get<bool>();
}

/// Where other receivers reach the relay of this one. The host is the one that the request came from, and the path has
/// a fixed form: so no receiver can make others send requests to another server.
std::string address_of(const Json& body, const net::Peer& peer) {
    const Json* const port = member(body, "port");
    const std::string key = text(body, "key");
    if (port == nullptr || !port->is_number_unsigned() || port->get<std::uint64_t>() - 1 >= 65535)
        reject("port", "the port on which the receiver listens", "something else");
    const bool is_hex = key.size() == kKeySize && key.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hex) reject("key", std::to_string(kKeySize) + " hexadecimal digits", "something else");
    const char* const scheme = flag(body, "tls") ? "https://" : "http://";
    const std::string host = peer.ip.empty() ? "127.0.0.1" : peer.ip;
    return scheme + net::host_and_port(host, port->get<int>()) + "/swarm/" + key;
}

Json parse(const net::Request& request) {
    const auto bytes = request.body != nullptr ? request.body->bytes() : std::span<const std::byte>();
    auto parsed = json_rpc::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    auto* const body = std::get_if<Json>(&parsed);
    if (body == nullptr || !body->is_object()) reject("body", "a JSON object", "something else");
    return std::move(*body);
}

}  // namespace

net::Response swarm_step(Services& all, const net::Request& request, const SwarmFile& file) {
    const Json body = parse(request);
    if (file.size == 0) reject("body", "nothing: the file is empty", "a request to fetch it together");
    const std::uint64_t size = piece_bytes(file.size), pieces = (file.size + size - 1) / size;
    runtime::SwarmTable::Report report;
    report.receiver = text(body, "receiver");
    report.got = numbers(body, "got");
    report.lost = numbers(body, "lost");
    const std::string digest = text(body, "digest");
    const bool for_damage = digest == "xxh3-128";
    if (!for_damage && !digest.empty() && digest != "sha-256") reject("digest", "sha-256 or xxh3-128", digest);
    report.leaves = flag(body, "leaves");
    if (!report.leaves) report.address = address_of(body, request.head.peer);
    const auto step = all.swarms.next(file.identity, pieces, report);
    if (!step) {
        if (report.leaves) return net::Response::json(200, "{}");
        return busy_response("too many receivers pull files together (--swarm-receivers)");
    }
    Json answer{{"receiver", step->receiver},
                {"piece_bytes", size},
                {"missing", step->missing},
                {"unfinished", step->unfinished}};
    if (step->piece) {
        answer["piece"] = *step->piece;
        const std::uint64_t first = *step->piece * size;
        if (!step->from.empty()) {
            answer["from"] = step->from;
            answer["digest"] = (for_damage ? file.xxh3 : file.sha256)({first, std::min(size, file.size - first)});
        }
    }
    return net::Response::json(200, answer.dump());
}

}  // namespace shared_tensor::server
