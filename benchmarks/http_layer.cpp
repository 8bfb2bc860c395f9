// The HTTP layer of the server without the rest of it: what a call costs before JSON-RPC begins.

#include <unistd.h>

#include "net/server/server.hpp"
#include "servers.hpp"

namespace bench {

namespace {

namespace net = shared_tensor::net;

class Echo final : public net::Handler {
    Verdict admit(const net::RequestHead&, bool) override { return net::BodyPlan{std::size_t{1} << 20}; }
    net::Response handle(net::Request request, net::ResponseStream&) override {
        return net::Response::json(200, std::string(request.text()));
    }
    net::Response rejection(int status, std::string_view reason, const net::RequestHead*) override {
        return net::Response::json(status, std::string(reason));
    }
};

}  // namespace

int serve_http_layer(const Arguments& role) {
    net::ServerOptions options;
    if (role.size() > 1) options.unix_socket = role[1];
    Echo echo;
    net::Server server(options, echo);
    server.start();
    announce(role.size() > 1 ? role[1] : std::to_string(server.port()));
    for (;;)
        ::pause();
}

}  // namespace bench
