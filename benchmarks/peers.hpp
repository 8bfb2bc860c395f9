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

/// A connection of its own to the server at `target` ("127.0.0.1:port" or "unix:/path") that echoes `body`.
/// `number`: another one for every connection.
Caller grpc_echo(const std::string& target, int number, const std::string& body);

/// Unary calls with `size` bytes to the server, from it, and there and back.
struct TensorCallers {
    Caller take, give, both;
};
TensorCallers grpc_tensors(const std::string& target, std::size_t size);
/// The first of them, over a connection of its own for each number.
Caller grpc_take(const std::string& target, int number, std::size_t size);
/// The same as streams of messages of 1 MiB, put together in memory that is there already.
TensorCallers grpc_chunks(const std::string& target, std::size_t size);

/// Streams of messages of `bytes` for about so long.
struct StreamPeer {
    std::function<double(std::size_t bytes, double seconds)> from_server;  ///< messages a second
    std::function<double(std::size_t bytes, double seconds)> both_ways;    ///< there and back at once, a second
    std::function<Sample(std::size_t bytes, double seconds)> one_by_one;   ///< each waits for its answer; microseconds
};
StreamPeer grpc_streams(const std::string& target);

/// cpp-httplib's own client, of a server at a TCP port, or at a path.
Caller httplib_echo(int port, const std::string& path, const std::string& body);

}  // namespace bench
