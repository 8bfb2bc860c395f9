#include "http_connection.hpp"

#include <sys/socket.h>

#include <cstdlib>
#include <stdexcept>

namespace bench {

bool HttpConnection::whole(std::string_view& body) const {
    static constexpr std::string_view kLength = "Content-Length: ";
    const std::string_view bytes(buffer_.data(), used_);
    const std::size_t head = bytes.find("\r\n\r\n");
    if (head == std::string_view::npos) return false;
    if (!bytes.starts_with("HTTP/1.1 200")) throw std::runtime_error("a call was rejected: " + std::string(bytes));
    const std::size_t field = bytes.substr(0, head).find(kLength);
    if (field == std::string_view::npos) throw std::runtime_error("an answer has no Content-Length");
    body = bytes.substr(head + 4);
    return body.size() >= std::strtoull(bytes.data() + field + kLength.size(), nullptr, 10);
}

std::string_view HttpConnection::receive() {
    std::string_view body;
    for (used_ = 0; !whole(body);) {
        const ssize_t got = ::recv(socket_.fd(), buffer_.data() + used_, buffer_.size() - used_, 0);
        if (got <= 0) throw std::runtime_error("the connection ended, or the answer is too long");
        used_ += static_cast<std::size_t>(got);
    }
    return body;
}

HttpCall prepare_call(Endpoint endpoint, std::string_view body,
                      const std::function<bool(std::string_view)>& understood) {
    HttpConnection connection(endpoint.connect());
    HttpCall call{endpoint, endpoint.post(body), {}, 0};
    call.answer = connection.round_trip(call.request);
    call.answer_bytes = connection.answer_bytes();
    if (!understood(call.answer)) throw std::runtime_error("a wrong answer: " + call.answer);
    return call;
}

std::string Endpoint::post(std::string_view body) const {
    return "POST /jsonrpc HTTP/1.1\r\nHost: " + host() +
           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
}

}  // namespace bench
