#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "net/client/client.hpp"
#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::TransportError;

/// A client of a server that answers every request with `text`.
struct Answering {
    explicit Answering(std::string text, int status = 200) {
        server.handler.on_handle = [text = std::move(text), status](net::Request, net::ResponseStream&) {
            return net::Response::json(status, text);
        };
    }
    net::ClientResponse get(net::BodyPlace& place) {
        net::ClientRequest request = text_request("");
        request.method = "GET";
        request.place = &place;
        return client.send(request);
    }

    EchoServer server;
    net::Client client{options_for(server.port())};
};

std::string text_of(const std::vector<std::byte>& memory) {
    return {reinterpret_cast<const char*>(memory.data()), memory.size()};
}

std::string digits(std::size_t count) {
    std::string text(count, '0');
    for (std::size_t i = 0; i < count; ++i)
        text[i] = static_cast<char>('0' + i % 10);
    return text;
}

TEST_CASE("the body of an answer goes to the memory that was named", "[http]") {
    for (const std::size_t size : {1UL, 100UL, 1'000'000UL}) {
        Answering answering(digits(size));
        std::vector<std::byte> memory(size);
        net::BodyPlace place{memory};
        const auto response = answering.get(place);
        CHECK(response.status == 200);
        CHECK(response.body->size() == 0);
        CHECK(place.filled == size);
        CHECK(text_of(memory) == digits(size));
        CHECK(answering.client.stats().bytes_in > size);
        place.filled = 0;
        CHECK(answering.get(place).status == 200);  // on the same connection
        CHECK(answering.client.stats().opened == 1);
    }
}

TEST_CASE("a rejection leaves the memory alone", "[http]") {
    Answering answering("no", 404);
    std::vector<std::byte> memory(2);
    net::BodyPlace place{memory};
    const auto response = answering.get(place);
    CHECK(response.status == 404);
    CHECK(response.text() == "no");
    CHECK(place.filled == 0);
}

TEST_CASE("an answer of another length is rejected before it is read", "[http]") {
    for (const std::size_t size : {5UL, 7UL}) {
        Answering answering(digits(size));
        std::vector<std::byte> memory(6);
        net::BodyPlace place{memory};
        net::ClientRequest request = text_request("");
        request.place = &place;
        CHECK(failure_of(answering.client, request).kind == TransportError::Kind::protocol);
        CHECK(place.filled == 0);
    }
}

}  // namespace
}  // namespace shared_tensor::test
