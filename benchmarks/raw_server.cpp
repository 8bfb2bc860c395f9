#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "bytes.hpp"
#include "servers.hpp"
#include "sockets.hpp"

namespace bench {

namespace {

/// Serves one client after another.
[[noreturn]] void serve_each(int listener, const std::function<void(int)>& serve) {
    for (;;) {
        const Socket client(::accept(listener, nullptr, nullptr));
        try {
            serve(client.fd());
        } catch (const std::runtime_error&) {
            // the client disconnected
        }
    }
}

std::function<void(int)> ping_pong(std::size_t in, std::size_t out) {
    return [ping = std::vector<char>(in), pong = std::vector<char>(out, 'o')](int fd) mutable {
        for (;;) {
            read_all(fd, ping.data(), ping.size());
            write_all(fd, pong.data(), pong.size());
        }
    };
}

/// Reads `in` bytes and answers with `out` bytes, or with a fingerprint of the input if `out` is 0.
class Copier {
public:
    void operator()(int fd) {
        for (;;) {
            CopyOrder order;
            read_all(fd, &order, sizeof order);
            if (in_.size() < order.in) in_ = filled(order.in);
            if (out_.size() < order.out) out_ = filled(order.out);
            read_all(fd, in_.data(), order.in);
            if (order.out > 0) {
                write_all(fd, out_.data(), order.out);
            } else {
                const std::int64_t seen = fingerprint(in_.data(), order.in);
                write_all(fd, &seen, sizeof seen);
            }
        }
    }

private:
    std::vector<std::uint8_t> in_, out_;
};

std::size_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

}  // namespace

int serve_raw(const Arguments& role) {
    const bool is_unix = role[0].ends_with("-unix");
    int port = 0;
    const int listener = is_unix ? listen_unix(role.at(1)) : listen_tcp(port);
    if (role[0] == "copy-reno") use_reno(listener);
    announce(is_unix ? role[1] : std::to_string(port));
    if (role[0].starts_with("copy-")) serve_each(listener, Copier());
    const std::size_t first = is_unix ? 2 : 1;
    serve_each(listener, ping_pong(number(role.at(first)), number(role.at(first + 1))));
}

}  // namespace bench
