// Behind nginx, as it comes from the distribution: what clients of other hosts often go through.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>

#include "example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/raw_http.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kNginx = "/usr/sbin/nginx";

int free_port() {
    const FaultyProxy listener;
    return listener.port();
}

/// nginx in front of a server at 127.0.0.1. Its folder is its own, and goes with it.
class Nginx {
public:
    Nginx(int port_of_server, bool buffering)
        : port_(free_port()),
          log_(logs_.file("log")),
          child_({kNginx, "-p", folder_.string(), "-c", write(port_of_server, buffering), "-e", "stderr"}, {}, log_,
                 log_) {
        const bool up = eventually([&] {
            try {
                HttpPeer(port_).close();
                return true;
            } catch (const std::exception&) {
                return child_.has_ended();
            }
        });
        if (!up || child_.has_ended()) throw std::runtime_error("nginx did not start: " + text_of_file(log_));
    }
    Nginx(const Nginx&) = delete;
    Nginx& operator=(const Nginx&) = delete;
    ~Nginx() {
        child_.signal(SIGTERM);
        child_.wait();
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

private:
    static std::filesystem::path make_folder() {
        std::string name = "/tmp/shared_tensor_nginx_XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
        return name;
    }
    std::string write(int port_of_server, bool buffering) const {
        const std::string on = buffering ? "on" : "off", temp = folder_.string();
        std::string text = ::geteuid() == 0 ? "user root;\n" : "";
        text += "daemon off;\nworker_processes 1;\npid " + temp + "/pid;\nevents { worker_connections 256; }\nhttp {\n";
        text += "  access_log off;\n  client_max_body_size 0;\n";
        for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
            text += "  " + std::string(kind) + "_temp_path " + temp + "/" + kind + ";\n";
        text += "  server {\n    listen 127.0.0.1:" + std::to_string(port_) + ";\n    location / {\n";
        text += "      proxy_pass http://127.0.0.1:" + std::to_string(port_of_server) + ";\n";
        text += "      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n";
        text += "      proxy_buffering " + on + ";\n      proxy_request_buffering " + on + ";\n    }\n  }\n}\n";
        const std::string path = temp + "/conf";
        std::ofstream(path) << text;
        return path;
    }

    const std::filesystem::path folder_ = make_folder();
    const int port_;
    TemporaryFolder logs_;
    const std::string log_;
    Child child_;
};

bool has_nginx() { return ::access(kNginx, X_OK) == 0; }

Client far_client(const std::string& url) {
    ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    options.retry = fixed_delay(10ms, 50);
    options.retry_budget.saved = 10'000;
    return Client(options);
}

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

constexpr std::int64_t kCount = 2'000'000;

}  // namespace

TEST_CASE("calls, files and parts go through nginx", "[client][nginx]") {
    if (!has_nginx()) SKIP("nginx is not installed (scripts/install_packages --checkers)");
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), buffering);
    const Client client = far_client(nginx.url());
    CHECK(client.call<double>("add", 1, 2) == 3);
    const at::Tensor x = numbers(kCount).to(at::kFloat);
    CHECK(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
    const NamedTensors names(client);
    const Published published = names.push("x", numbers(kCount), {.part_bytes = 300'000});
    CHECK(at::equal(names.get("x").tensor(), numbers(kCount)));
    const NamedTensor pulled = names.pull("x", {.range_bytes = 700'000});
    CHECK(at::equal(pulled.tensor(), numbers(kCount)));
    CHECK(pulled.version() == published.version);
    CHECK(at::equal(names.pull("x", {.first_row = 10, .last_row = 20}).tensor(), numbers(kCount).slice(0, 10, 20)));
    CHECK_THROWS_AS(names.pull("y"), UnknownOrExpired);
    CHECK(client.statistics().retries == 0);
}

TEST_CASE("what breaks behind nginx is resumed through it", "[client][nginx]") {
    if (!has_nginx()) SKIP("nginx is not installed (scripts/install_packages --checkers)");
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    // nginx makes a connection for each request: those of some parts suffice.
    FaultyProxy down(
        [](int connection) { return Harm{.cut_down = 150'000 + static_cast<unsigned>(connection % 7) * 9'973}; });
    FaultyProxy up(
        [](int connection) { return Harm{.cut_up = 60'000 + static_cast<unsigned>(connection % 7) * 9'973}; });
    // nginx names the server that it passes on to.
    const ExampleDaemon server({"--allowed-host", down.authority(), "--allowed-host", up.authority()});
    NamedTensors near(server.client());
    near.put("x", numbers(kCount));
    down.pass_on_to(server.daemon.port());
    up.pass_on_to(server.daemon.port());
    const Nginx reading(down.port(), buffering), writing(up.port(), buffering);
    const Client reader = far_client(reading.url()), writer = far_client(writing.url());
    const NamedTensor pulled = NamedTensors(reader).pull("x", {.connections = 2, .range_bytes = 250'000});
    CHECK(at::equal(pulled.tensor(), numbers(kCount)));
    CHECK(reader.statistics().retries > 0);
    NamedTensors(writer).push("y", numbers(kCount), {.connections = 2, .part_bytes = 100'000});
    CHECK(at::equal(near.get("y").tensor(), numbers(kCount)));
    CHECK(writer.statistics().retries > 0);
}
