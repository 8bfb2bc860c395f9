#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "contest.hpp"

namespace bench {

/// Whether this program was built with gRPC C++ and libjson-rpc-cpp.
bool have_grpc();
bool have_jsonrpccpp();

/// Echoes `body` through the server at `target` ("127.0.0.1:port" or "unix:/path"), over its own connection. Each
/// connection needs another `number`.
Caller grpc_echo(const std::string& target, int number, const std::string& body);

/// Unary calls with `size` bytes to the server, from the server, and both.
struct TensorCallers {
    Caller take, give, both;
};
TensorCallers grpc_tensors(const std::string& target, std::size_t size);
/// Like grpc_tensors().take, with its own connection for each number.
Caller grpc_take(const std::string& target, int number, std::size_t size);
/// The same as streams of 1 MiB messages, assembled in memory that is allocated before.
TensorCallers grpc_chunks(const std::string& target, std::size_t size);

/// Streams messages of `bytes` bytes for about `seconds`.
struct StreamPeer {
    std::function<double(std::size_t bytes, double seconds)> from_server;  ///< messages per second
    std::function<double(std::size_t bytes, double seconds)> both_ways;    ///< messages per second, both ways at once
    std::function<Sample(std::size_t bytes, double seconds)> one_by_one;   ///< each waits for its answer; microseconds
};
StreamPeer grpc_streams(const std::string& target);

/// A caller that uses cpp-httplib's client; the server is at a TCP port, or at a path.
Caller httplib_echo(int port, const std::string& path, const std::string& body);

}  // namespace bench
