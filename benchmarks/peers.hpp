#pragma once

#include "measure.hpp"

namespace bench {

/// Whether this program was built with gRPC C++ (libgrpc++-dev) and libjson-rpc-cpp (libjsonrpccpp-dev).
bool have_grpc();
bool have_jsonrpccpp();

/// Unary echo calls of a 16-byte message, one after another.
Latencies grpc_calls(int port, double seconds);
double grpc_calls_per_second(int port, int threads, double seconds);

}  // namespace bench
