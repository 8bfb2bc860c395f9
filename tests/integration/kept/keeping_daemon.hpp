#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <string>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

namespace shared_tensor::test {

/// A daemon with functions that keep what they were given; a client that shares memory with it, and one that does not.
struct KeepingDaemon {
    explicit KeepingDaemon(const Words& options = {}) : daemon(with_plugin(options)) {}

    std::string url() const { return "http://127.0.0.1:" + std::to_string(daemon.port()); }
    Client client() const { return Client(url()); }
    Client by_bytes() const {
        ClientOptions options;
        options.url = url();
        options.local_socket = "none";
        return Client(options);
    }
    void open(const std::string& gate) const { (void)call(daemon.port(), "open", {gate}); }
    bool until_waiting(const std::string& gate) const {
        return eventually([&] { return call(daemon.port(), "waiting", {gate}) > 0; });
    }

    bool until_kept(const std::string& name) const {
        return eventually([&] { return call_code(daemon.port(), "kept", {name}) == 0; });
    }

    Daemon daemon;

private:
    static Words with_plugin(const Words& options) {
        Words words{"--load", SHARED_TENSOR_KEEPING_PLUGIN, "--workers", "4"};
        words.insert(words.end(), options.begin(), options.end());
        return words;
    }
};

constexpr std::int64_t kCount = 1 << 16;  // 256 KiB: cached, and more than is sent as bytes
constexpr float kLater = 666;             // what a client writes to its memory afterwards

inline at::Tensor all(float value, std::int64_t count = kCount) { return at::full({count}, value, at::kFloat); }
/// In memory that the client shares with the daemon.
inline at::Tensor lent(const Client& client, float value) {
    return client.empty_in_shared_memory({kCount}, at::kFloat).fill_(value);
}

}  // namespace shared_tensor::test
