#pragma once

// Runs the distribution's nginx in front of a server. POSIX only.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "support/daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/raw_http.hpp"

namespace shared_tensor::test {

constexpr const char* kNginx = "/usr/sbin/nginx";

/// The reason that a test prints when it is skipped because nginx is not installed.
inline constexpr const char* kNoNginx = "nginx is not installed (scripts/install_packages --checkers)";

inline bool has_nginx() { return ::access(kNginx, X_OK) == 0; }

/// An nginx in front of a server at 127.0.0.1, with its own temporary folder.
class Nginx {
public:
    struct Options {
        bool buffering = false;
        std::string user = "root";         ///< of the nginx workers, if this process runs as root
        std::string certificate{}, key{};  ///< PEM files; if set, nginx serves https
        /// PEM file of the authorities of the server's certificate; if set, nginx connects to the server by https.
        std::string server_authorities{};
    };
    Nginx(int port_of_server, const Options& requested)
        : port_(FaultyProxy().port()),
          tls_(!requested.certificate.empty()),
          log_(logs_.file("log")),
          child_({kNginx, "-p", folder_.string(), "-c", write(port_of_server, requested), "-e", "stderr"}, {}, log_,
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
    int port() const { return port_; }
    std::string url() const { return (tls_ ? "https" : "http") + ("://127.0.0.1:" + std::to_string(port_)); }

private:
    static std::filesystem::path make_folder() {
        std::string name = "/tmp/shared_tensor_nginx_XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
        return name;
    }
    std::string write(int port_of_server, const Options& requested) const {
        const std::string on = requested.buffering ? "on" : "off", temp = folder_.string();
        std::string text = ::geteuid() == 0 ? "user " + requested.user + ";\n" : "";
        text += "daemon off;\nworker_processes 1;\npid " + temp + "/pid;\nevents { worker_connections 256; }\nhttp {\n";
        text += "  access_log off;\n  client_max_body_size 0;\n";
        for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
            text += "  " + std::string(kind) + "_temp_path " + temp + "/" + kind + ";\n";
        text += "  map $http_upgrade $connection_header { default upgrade; \"\" \"\"; }\n";
        text += "  server {\n    listen 127.0.0.1:" + std::to_string(port_) + (tls_ ? " ssl" : "") + ";\n";
        if (tls_) {
            text +=
                "    ssl_certificate " + requested.certificate + ";\n    ssl_certificate_key " + requested.key + ";\n";
            text += "    ssl_protocols TLSv1.3;\n";
        }
        const bool tls_behind = !requested.server_authorities.empty();
        const std::string server = "127.0.0.1:" + std::to_string(port_of_server);
        text += "    location / {\n      proxy_pass http" + std::string(tls_behind ? "s" : "") + "://" + server + ";\n";
        if (tls_behind) {
            text += "      proxy_ssl_trusted_certificate " + requested.server_authorities + ";\n";
            text += "      proxy_ssl_verify on;\n      proxy_ssl_name localhost;\n      proxy_ssl_protocols TLSv1.3;\n";
        }
        text += "      proxy_http_version 1.1;\n      proxy_set_header Host " + server + ";\n";
        text += "      proxy_set_header Upgrade $http_upgrade;\n";
        text += "      proxy_set_header Connection $connection_header;\n";
        text += "      proxy_buffering " + on + ";\n      proxy_request_buffering " + on + ";\n    }\n  }\n}\n";
        const std::string path = temp + "/conf";
        std::ofstream(path) << text;
        return path;
    }

    const std::filesystem::path folder_ = make_folder();
    const int port_;
    const bool tls_;
    TemporaryFolder logs_;
    const std::string log_;
    Child child_;
};

}  // namespace shared_tensor::test
