#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shared_tensor {

/// The times of a call and the transports of its tensors. Client::call() fills it in; if the call fails, with the data
/// that is known then.
struct Receipt {
    /// The tensors that crossed by one transport: "shm", "cuda_ipc", "body", "url", "base64" or "data".
    struct Transport {
        std::string name;
        std::uint64_t tensors = 0;  ///< arguments and results
        std::uint64_t copied = 0;   ///< bytes that the server copied for them
    };

    std::string request_id;  ///< the JSON-RPC id
    unsigned tries = 0;      ///< how often the request was sent: 1 if it was not repeated
    std::vector<Transport> transports;
    /// Bytes that the server copied for tensors, and that the client copied for arguments. Bytes that cross a network
    /// or a socket are not counted: "body" sends them from the tensor's own memory.
    std::uint64_t bytes_copied = 0;
    /// How long the call waited for a worker, and how long its function ran, measured by the server. Nullopt if no
    /// function ran: for a cached result, or a method of the server itself.
    std::optional<std::chrono::nanoseconds> queue, run;
    std::chrono::nanoseconds total{0};  ///< until the answer came, with all tries and pauses
};

}  // namespace shared_tensor
