#pragma once

#include <string>

#include <shared_tensor/client.hpp>

namespace shared_tensor::test {

/// As on another host: no memory is shared.
inline Client far_client(const std::string& url, ClientOptions options = {}) {
    options.url = url;
    options.local_socket = "none";
    return Client(options);
}

}  // namespace shared_tensor::test
