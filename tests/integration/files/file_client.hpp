#pragma once

// Tensors of a daemon as files, over a plain socket.

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "integration/server/shared_daemon.hpp"

namespace shared_tensor::test {

inline HttpReply send(int port, const std::string& method, const std::string& target, const std::string& body = {},
                      const HeaderList& headers = {}) {
    return http_request(port, method, "/tensors/" + target, body, headers);
}
inline HttpReply get(int port, const std::string& target, const HeaderList& headers = {}) {
    return send(port, "GET", target, {}, headers);
}

inline Json error_of(const HttpReply& reply) { return Json::parse(reply.body)["error"]; }

/// The bytes of 0, 1, 2, ... as float32.
inline std::string numbers(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0F);
    return {reinterpret_cast<const char*>(values.data()), count * sizeof(float)};
}

inline HeaderList join(HeaderList headers, const HeaderList& more) {
    headers.insert(headers.end(), more.begin(), more.end());
    return headers;
}
inline HeaderList shaped(const std::string& dtype, const std::string& shape, const HeaderList& more = {}) {
    return join({{"Shared-Tensor-Dtype", dtype}, {"Shared-Tensor-Shape", shape}}, more);
}
/// Of a raw file of rows x 4 numbers.
inline HeaderList floats(std::size_t rows, const HeaderList& more = {}) {
    return shaped("float32", "[" + std::to_string(rows) + ",4]", more);
}

/// A safetensors file of this header and these bytes.
inline std::string safetensors(const std::string& json, const std::string& bytes) {
    std::string file(8, '\0');
    const std::uint64_t size = json.size();
    std::memcpy(file.data(), &size, 8);
    return file + json + bytes;
}

/// A daemon that knows ann, bob and the admin root by their tokens; and what they send.
struct DaemonOfUsers : TokenDaemon {
    explicit DaemonOfUsers(const Words& options = {})
        : TokenDaemon(token("ann") + token("bob") + token("root", ":admin"), options) {}
};
inline HeaderList as(const std::string& name) { return bearer(name[0]); }

}  // namespace shared_tensor::test
