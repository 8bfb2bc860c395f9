#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace bench {

using Arguments = std::vector<std::string>;

/// The roles of this program in a child process. Each prints its address and serves until it is killed.
///   raw-tcp IN OUT | raw-unix PATH IN OUT   answers a ping of IN bytes with a pong of OUT bytes
///   copy-tcp | copy-reno | copy-unix PATH   copies of any size, from and into warm buffers (raw_server.cpp)
///   mapping PATH BYTES                      holds a memfd of ones and answers with the offset of the tensor
///   httplib-echo [PATH]                     bare cpp-httplib: returns the body
///   httplib-json [PATH]                     cpp-httplib with nlohmann/json in its handler
///   http-layer [PATH]                       the HTTP layer of this library alone: returns the body
///   ours COUNT [PATH]                       this library with COUNT functions
///   processes [PATH]                        the same with 5 functions that run in a worker process
///   overload                                a function `work` of 10 ms, two workers, a queue of one call
///   node                                    a node that receives pushed messages
///   grpc [PATH] | jsonrpccpp                only if the libraries were found
int serve_role(const Arguments& role);

/// The header of a raw copy, sent by the client: sizes in bytes.
struct CopyOrder {
    unsigned long long in = 0, out = 0;
};

/// Prints the address; the parent waits for it.
void announce(const std::string& address);

int serve_raw(const Arguments& role);
int serve_mapping(const Arguments& role);
int serve_httplib(const Arguments& role);
int serve_http_layer(const Arguments& role);
int serve_ours(const Arguments& role);
constexpr const char* kGrpcCallback = "grpc-callback";  ///< a role: answers small calls only
int serve_grpc(const Arguments& role);
int serve_jsonrpccpp();
int serve_node();
int serve_processes(const Arguments& role);
int serve_overload();

constexpr int kOverloadWorkers = 2;
constexpr std::chrono::milliseconds kOverloadTime{10};

}  // namespace bench
