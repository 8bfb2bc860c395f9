#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shared_tensor {

/// What a call took, and how its tensors crossed: Client::call() fills it, also where the call fails, then with what
/// was known by then.
struct Receipt {
    /// Tensors that crossed by one transport: "shm", "cuda_ipc", "body", "url", "base64" or "data".
    struct Transport {
        std::string name;
        std::uint64_t tensors = 0;  ///< arguments and results
        std::uint64_t copied = 0;   ///< bytes that the server copied for them
    };

    std::string request_id;  ///< the JSON-RPC id
    unsigned tries = 0;      ///< how often the request was sent: 1 where nothing had to be repeated
    std::vector<Transport> transports;
    /// Bytes that the server copied for tensors, and the client for arguments. Bytes on their way through the network
    /// or a socket are not counted: those of "body" are written from the tensor's own memory.
    std::uint64_t bytes_copied = 0;
    /// How long the call waited for a worker, and how long its function ran, as the server measured it. None where no
    /// function ran: a cached result, a method of the server's own.
    std::optional<std::chrono::nanoseconds> queue, run;
    std::chrono::nanoseconds total{0};  ///< until the answer was there, with all tries and pauses
};

}  // namespace shared_tensor
