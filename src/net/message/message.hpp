#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.hpp"
#include "base/memory/memory_block.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::net {

/// Header fields in the order received. Names compare without case.
class Headers {
public:
    void add(std::string name, std::string value) {
        if (fields_.empty()) fields_.reserve(16);  // more than our own client sends
        fields_.emplace_back(std::move(name), std::move(value));
    }
    /// Replaces all fields of that name.
    void set(std::string name, std::string value) {
        std::erase_if(fields_, [&](const auto& field) { return same_token(field.first, name); });
        add(std::move(name), std::move(value));
    }
    /// The first value of that name.
    std::optional<std::string_view> find(std::string_view name) const {
        for (const auto& [key, value] : fields_) {
            if (same_token(key, name)) return value;
        }
        return std::nullopt;
    }
    /// How often the name occurs. Some fields must not occur twice.
    std::size_t count(std::string_view name) const {
        const auto is_named = [&](const auto& field) { return same_token(field.first, name); };
        return static_cast<std::size_t>(std::count_if(fields_.begin(), fields_.end(), is_named));
    }
    auto begin() const { return fields_.begin(); }
    auto end() const { return fields_.end(); }

private:
    std::vector<std::pair<std::string, std::string>> fields_;
};

/// The peer's identity by its certificate.
struct PeerCertificate {
    std::string name;      ///< the subject's common name, else "sha256:FINGERPRINT"
    bool is_good = false;  ///< valid today, and signed by one of the configured authorities
};

/// The other end of a connection, as the kernel knows it.
struct Peer {
    std::string ip;  ///< empty for a Unix socket
    int port = 0;
    bool unix_socket = false;
    std::optional<std::uint32_t> uid;  ///< SO_PEERCRED, or sock_diag for loopback TCP; none if it is not known
    int uid_error = 0;                 ///< errno, if the kernel could not be asked for `uid` just now
    std::optional<std::int32_t> pid;   ///< SO_PEERCRED only
    std::optional<PeerCertificate> certificate{};  ///< of a client that sent one over TLS
};

/// A request without its body.
struct RequestHead {
    std::string method;  ///< "POST"
    std::string path;    ///< decoded, without the query
    std::string query;   ///< raw, without '?'
    Headers headers;
    Peer peer;
};

class Admission;

/// A request that was served, for an access log. Valid during Handler::served().
struct ServedRequest {
    const RequestHead* head;     ///< null: it had no correct head
    const Admission* admission;  ///< null: it was rejected
    std::string_view id;
    int status;
    std::uint64_t bytes_in, bytes_out;  ///< of bodies received, and of all that was sent
    std::chrono::nanoseconds time;      ///< from the end of its head until the answer was sent
};

/// Base of the data that a handler attaches to a request in Handler::admit() and gets back in handle().
class Admission {
public:
    virtual ~Admission() = default;
};

/// A request with its whole body in a pooled buffer (64-byte aligned; size() is the size of the body).
/// The buffer may be kept beyond the request. It returns to its pool with its last owner.
struct Request {
    RequestHead head;
    std::shared_ptr<PooledBuffer> body;
    std::shared_ptr<const Admission> admission{};  ///< from the BodyPlan
    std::string_view text() const {
        return body ? std::string_view(reinterpret_cast<const char*>(body->data()), body->size()) : std::string_view();
    }
};

using shared_tensor::BodyPart;
using shared_tensor::BodySource;

/// The size of a body in bytes.
inline std::uint64_t size_of(std::span<const BodyPart> parts) {
    std::uint64_t size = 0;
    for (const BodyPart& part : parts)
        size += part.size();
    return size;
}

/// Calls `use` for one piece of the body after another, until `use` returns false. Pieces have a bounded size.
template <class Use>
bool for_each_piece(const std::vector<BodyPart>& parts, Use use) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    for (const BodyPart& part : parts) {
        if (part.source == nullptr) {
            for (std::size_t at = 0; at < part.bytes.size(); at += kPiece) {
                if (!use(part.bytes.subspan(at, std::min(kPiece, part.bytes.size() - at)))) return false;
            }
            continue;
        }
        const auto reading = part.source->read(part.offset, part.count);
        for (auto piece = reading->next(); !piece.empty(); piece = reading->next()) {
            if (!use(piece)) return false;
        }
    }
    return true;
}

/// An answer. Its body is either `text`, or `parts` one after another, never both.
struct Response {
    int status = 200;
    Headers headers;
    std::string content_type;  ///< empty with an empty body
    std::string text;
    std::vector<BodyPart> parts;
    bool close = false;  ///< close the connection after this answer

    static Response json(int status, std::string text) {
        Response response;
        response.status = status;
        response.content_type = "application/json";
        response.text = std::move(text);
        return response;
    }
};

}  // namespace shared_tensor::net
