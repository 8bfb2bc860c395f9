#include <jsonrpccpp/server.h>
#include <jsonrpccpp/server/connectors/httpserver.h>

#include <chrono>
#include <thread>

#include "peers.hpp"
#include "servers.hpp"
#include "sockets.hpp"

namespace bench {

namespace {

class EchoServer : public jsonrpc::AbstractServer<EchoServer> {
public:
    explicit EchoServer(jsonrpc::HttpServer& connector)
        : jsonrpc::AbstractServer<EchoServer>(connector, jsonrpc::JSONRPC_SERVER_V2) {
        bindAndAddMethod(jsonrpc::Procedure("echo", jsonrpc::PARAMS_BY_POSITION, jsonrpc::JSON_INTEGER, "param1",
                                            jsonrpc::JSON_INTEGER, nullptr),
                         &EchoServer::echo);
    }

private:
    void echo(const Json::Value& request, Json::Value& response) { response = request[0]; }
};

}  // namespace

bool have_jsonrpccpp() { return true; }

int serve_jsonrpccpp() {
    const int port = free_port();  // it does not support port 0
    // It divides its limit of 1,020 connections among the threads, and closes connections of a thread that exceeds its
    // share: so use few threads.
    jsonrpc::HttpServer connector(port, "", "", 8);
    EchoServer server(connector);
    if (!server.StartListening()) return 1;
    announce(std::to_string(port));
    for (;;)
        std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace bench
