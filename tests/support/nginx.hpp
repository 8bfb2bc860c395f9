#pragma once

// Runs the distribution's nginx in front of a server. POSIX only.

#include <string>

#include "support/daemon.hpp"
#include "support/faulty_proxy.hpp"

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
    Nginx(int port_of_server, const Options& options)
        : port_(FaultyProxy().port()),
          scheme_(options.certificate.empty() ? "http" : "https"),
          log_(folder_.file("log")),
          child_({kNginx, "-p", folder_.path(), "-c", folder_.write("conf", configuration(port_of_server, options)),
                  "-e", "stderr"},
                 {}, log_, log_) {
        const bool up = eventually([&] {
            const int connection = connected_socket(port_);
            ::close(connection);
            return connection >= 0 || child_.has_ended();
        });
        if (!up || child_.has_ended()) throw std::runtime_error("nginx did not start: " + text_of_file(log_));
    }
    ~Nginx() {
        child_.signal(SIGTERM);
        child_.wait();
    }
    int port() const { return port_; }
    std::string url() const { return scheme_ + "://127.0.0.1:" + std::to_string(port_); }

private:
    std::string configuration(int port_of_server, const Options& options) const {
        const std::string on = options.buffering ? "on" : "off", folder = folder_.path();
        const std::string server = "127.0.0.1:" + std::to_string(port_of_server);
        const bool tls = scheme_ == "https", tls_behind = !options.server_authorities.empty();
        std::string text = ::geteuid() == 0 ? "user " + options.user + ";\n" : "";
        text += "daemon off;\nworker_processes 1;\npid " + folder +
                "/pid;\nevents { worker_connections 256; }\nhttp {\n" + "access_log off;\nclient_max_body_size 0;\n";
        for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
            text += std::string(kind) + "_temp_path " + folder + "/" + kind + ";\n";
        text += "map $http_upgrade $connection_header { default upgrade; \"\" \"\"; }\n";
        text += "server {\nlisten 127.0.0.1:" + std::to_string(port_) + (tls ? " ssl" : "") + ";\n";
        if (tls) {
            text += "ssl_certificate " + options.certificate + ";\nssl_certificate_key " + options.key +
                    ";\nssl_protocols TLSv1.3;\n";
        }
        text += std::string("location / {\nproxy_pass ") + (tls_behind ? "https" : "http") + "://" + server + ";\n";
        if (tls_behind) {
            text += "proxy_ssl_trusted_certificate " + options.server_authorities +
                    ";\nproxy_ssl_verify on;\nproxy_ssl_name localhost;\nproxy_ssl_protocols TLSv1.3;\n";
        }
        return text + "proxy_http_version 1.1;\nproxy_set_header Host " + server +
               ";\nproxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection $connection_header;\n" +
               "proxy_buffering " + on + ";\nproxy_request_buffering " + on + ";\n}\n}\n}\n";
    }

    TemporaryFolder folder_;
    const int port_;
    const std::string scheme_, log_;
    Child child_;
};

}  // namespace shared_tensor::test
