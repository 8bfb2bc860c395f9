#include "servers.hpp"

#include <cstdio>
#include <stdexcept>

namespace bench {

void announce(const std::string& address) {
    std::printf("%s\n", address.c_str());
    std::fflush(stdout);
}

int serve_role(const Arguments& role) {
    const std::string& name = role.at(0);
    if (name.starts_with("raw-") || name.starts_with("copy-")) return serve_raw(role);
    if (name == "mapping") return serve_mapping(role);
    if (name.starts_with("httplib-")) return serve_httplib(role);
    if (name == "http-layer") return serve_http_layer(role);
    if (name == "ours") return serve_ours(role);
    if (name == "overload") return serve_overload();
    if (name == "processes") return serve_processes(role);
    if (name == "node") return serve_node();
    if (name == "grpc" || name == kGrpcCallback) return serve_grpc(role);
    if (name == "jsonrpccpp") return serve_jsonrpccpp();
    throw std::runtime_error("there is no role " + name);
}

}  // namespace bench
