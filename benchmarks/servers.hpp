#pragma once

#include <string>
#include <vector>

namespace bench {

using Arguments = std::vector<std::string>;

/// The roles that this program plays in a child process: each prints where it listens and serves until it is killed.
///   raw-tcp IN OUT | raw-unix PATH IN OUT   a ping of IN bytes is answered by a pong of OUT bytes
///   copy-tcp | copy-reno | copy-unix PATH   copies of any size, from and into warm buffers (raw_server.cpp)
///   mapping PATH BYTES                      holds a memfd of ones and answers where it lies in there
///   httplib-echo [PATH]                     bare cpp-httplib: the body comes back
///   httplib-json [PATH]                     cpp-httplib with nlohmann/json in its handler
///   ours COUNT [PATH]                       this library with COUNT functions
///   node                                    receives what is pushed to it
///   grpc [PATH] | jsonrpccpp                where the libraries were found
int serve_role(const Arguments& role);

/// For the client's side of a copy: what comes first on the wire.
struct CopyOrder {
    unsigned long long in = 0, out = 0;
};

/// Prints the address that the parent waits for.
void announce(const std::string& address);

int serve_raw(const Arguments& role);
int serve_mapping(const Arguments& role);
int serve_httplib(const Arguments& role);
int serve_ours(const Arguments& role);
int serve_grpc(const Arguments& role);
int serve_jsonrpccpp();
int serve_node();

}  // namespace bench
