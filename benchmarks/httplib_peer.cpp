#include <httplib.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bytes.hpp"
#include "peers.hpp"
#include "servers.hpp"

namespace bench {

namespace {

constexpr std::size_t kThreads = 80;  // cpp-httplib needs a thread for each connection
constexpr const char* kJson = "application/json";

void answer_echo(const httplib::Request& request, httplib::Response& response) {
    response.set_content(request.body, kJson);
}

void answer_json(const httplib::Request& request, httplib::Response& response) {
    const auto json = nlohmann::json::parse(request.body);
    const nlohmann::json answer{{"jsonrpc", "2.0"}, {"id", json.at("id")}, {"result", json.at("params").at(0)}};
    response.set_content(answer.dump(), kJson);
}

}  // namespace

int serve_httplib(const Arguments& role) {
    httplib::Server server;
    server.set_tcp_nodelay(true);
    server.set_keep_alive_max_count(1'000'000'000);
    server.set_keep_alive_timeout(3600);
    server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server.Post("/jsonrpc", role[0] == "httplib-json" ? answer_json : answer_echo);
    if (role.size() > 1) {
        std::filesystem::remove(role[1]);
        server.set_address_family(AF_UNIX);
        if (!server.bind_to_port(role[1], 80)) throw std::runtime_error("cannot bind " + role[1]);
        announce(role[1]);
    } else {
        announce(std::to_string(server.bind_to_any_port("127.0.0.1")));
    }
    return server.listen_after_bind() ? 0 : 1;
}

Caller httplib_echo(int port, const std::string& path, const std::string& body) {
    std::shared_ptr<httplib::Client> client;
    if (path.empty()) {
        client = std::make_shared<httplib::Client>("127.0.0.1", port);
    } else {
        client = std::make_shared<httplib::Client>(path);
        client->set_address_family(AF_UNIX);
    }
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    return [client, body] {
        const auto result = client->Post("/jsonrpc", body, kJson);
        require(result && result->status == 200 && result->body == body, "cpp-httplib: a wrong answer");
    };
}

}  // namespace bench
