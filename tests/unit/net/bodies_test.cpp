#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <map>
#include <random>

#include "support/process.hpp"
#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

// Bodies of requests and answers.

namespace shared_tensor::test {
namespace {

using net::BodyPlan;
using net::Response;

TEST_CASE("a body of any size arrives whole and aligned, with a length or in chunks", "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    const auto raw = under_test.raw_client();
    net::Client client(under_test.options_of_client());
    for (const std::size_t size :
         {0, 1, 4095, 4096, 16'383, 16'384, 16'385, 65'535, 65'536, 65'537, 131'073, 1 << 20, 20'000'000}) {
        INFO(size);
        const std::string body = random_bytes(size);
        raw->send(post("/p", body));
        CHECK((raw->read_answer().body == body));
        const auto response = client.send(text_request(body));
        CHECK((response.text() == body));
        CHECK(reinterpret_cast<std::uintptr_t>(response.body->data()) % 64 == 0);
    }
    CHECK(client.stats().opened == 1);
    for (const std::size_t piece : {1, 7, 16384, 100'000}) {
        INFO(piece);
        const std::string body = random_bytes(piece == 1 ? 5'000 : 3'000'000);
        raw->send(chunked(body, piece));
        CHECK((raw->read_answer().body == body));
    }
}

TEST_CASE("a body is 64-byte aligned and may be kept beyond the request", "[http]") {
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        kept.with([&](auto& all) { all.push_back(std::move(request.body)); });
        return Response::json(200, "");
    };
    RawClient client(under_test.port());
    for (const auto* text : {"one", "two"}) {
        client.send(post("/p", text));
        REQUIRE(client.read_answer().status == 200);
    }
    under_test.server.stop(std::chrono::milliseconds(0));
    kept.with([](auto& all) {
        REQUIRE(all.size() == 2);
        CHECK(reinterpret_cast<std::uintptr_t>(all[0]->data()) % 64 == 0);
        CHECK(std::string(reinterpret_cast<const char*>(all[0]->data()), all[0]->size()) == "one");
        CHECK(std::string(reinterpret_cast<const char*>(all[1]->data()), all[1]->size()) == "two");
    });
}

TEST_CASE("a body beyond the plan's limit, or in too many chunks, gets 413, one of exactly the limit passes",
          "[http]") {
    net::ServerOptions options;
    options.max_chunks = 100;
    EchoServer under_test(options);
    under_test.handler.plan.max_bytes = 1000;
    const auto text = [](std::size_t size) { return std::string(size, 'x'); };
    const std::pair<std::string, std::string> table[] = {
        {post("/p", text(1000)), post("/p", text(1001))},
        {chunked(text(1000), 300), chunked(text(1001), 300)},
        {chunked(text(100), 1), chunked(text(101), 1)},
    };
    for (const auto& [fits, is_too_much] : table) {
        RawClient client(under_test.port());
        client.send(fits);
        CHECK(client.read_answer().status == 200);
        client.send(is_too_much + get("/smuggled"));
        const auto answer = client.read_answer();
        CHECK(answer.status == 413);
        CHECK(answer.body.starts_with("fault: "));
        CHECK(client.is_closed());
    }
    for (const auto& path : under_test.handler.admitted())
        CHECK(path != "/smuggled");
    RawClient greedy(under_test.port());  // sends much more, and still reads why it was rejected
    greedy.send(post("/p", text(8'000'000)));
    CHECK(greedy.read_answer().status == 413);
    net::Client client(options_for(under_test.port()));
    CHECK(client.send(text_request(text(64 << 20))).status == 413);
    CHECK(client.send(text_request("fits")).text() == "fits");
}

TEST_CASE("the handler decides on the headers alone, before a byte of the body came", "[http]") {
    EchoServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<BodyPlan, Response> {
        if (head.path == "/no") return Response::json(401, "no token");
        return BodyPlan{1000, false};
    };
    RawClient client(under_test.port());
    client.send(post("/no", "body") + post("/yes", "answered"));  // a body that is there keeps the connection
    CHECK(client.read_answer().status == 401);
    CHECK(client.read_answer().body == "answered");
    client.send("POST /no HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n");
    const auto answer = client.read_answer();
    CHECK(answer.status == 401);
    CHECK(answer.body == "no token");
    CHECK(answer.has("Connection: close"));
    CHECK(client.is_closed());
    RawClient in_chunks(under_test.port());  // which may hold requests of others
    in_chunks.send("POST /no HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n" + get("/smuggled"));
    CHECK(in_chunks.read_answer().status == 401);
    CHECK(in_chunks.is_closed());
}

TEST_CASE("Expect: 100-continue is answered once the request is admitted", "[http]") {
    EchoServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<BodyPlan, Response> {
        if (head.path == "/no") return Response::json(401, "no");
        return BodyPlan{1000, false};
    };
    const auto head = [](std::string_view path, std::string_view framing) {
        return "POST " + std::string(path) + " HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n" + std::string(framing) +
               "\r\n\r\n";
    };
    RawClient client(under_test.port());
    client.send(head("/yes", "Content-Length: 5"));
    CHECK(client.read_answer().head == "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    CHECK(client.read_answer().body == "hello");

    client.send(head("/yes", "Content-Length: 5") + "hello");  // sent without waiting: no invitation is needed
    CHECK(client.read_answer().body == "hello");

    client.send(head("/yes", "Transfer-Encoding: chunked"));
    CHECK(client.read_answer().status == 100);
    client.send("2\r\nok\r\n0\r\n\r\n");
    CHECK(client.read_answer().body == "ok");

    client.send(head("/no", "Content-Length: 5"));
    CHECK(client.read_answer().status == 401);
    CHECK(client.is_closed());

    RawClient greedy(under_test.port());
    greedy.send(head("/yes", "Content-Length: 1001"));
    CHECK(greedy.read_answer().status == 413);
}

// Bytes in flight.

/// A server whose clients name themselves in a header, each with a budget, and that keeps the bodies of "/keep".
struct SharingServer {
    SharingServer(std::size_t of_all, std::size_t of_each) : under_test(with(of_all)) {
        for (const char* name : {"ann", "ben"})
            budgets[name] = std::make_shared<Budget>(of_each);
        under_test.handler.on_admit = [this](const net::RequestHead& head) {
            return BodyPlan{std::size_t{1} << 30, false, budgets.at(std::string(*head.headers.find("X-Client")))};
        };
        under_test.handler.on_handle = [this](net::Request request, net::ResponseStream&) {
            if (request.head.query == "keep") kept.with([&](auto& all) { all.push_back(std::move(request.body)); });
            return Response::json(200, "taken");
        };
        under_test.start();
    }
    static net::ServerOptions with(std::size_t of_all) {
        net::ServerOptions options;
        options.max_bytes_in_flight = of_all;
        return options;
    }
    int send(const std::string& name, std::size_t bytes, bool keep = false, bool in_chunks = false) {
        RawClient client(under_test.port());
        const std::string body(bytes, 'x'), field = "X-Client: " + name + "\r\n";
        std::string request = in_chunks ? chunked(body, 65'536, field) : post("/p", body, field);
        if (keep) request.insert(request.find(" HTTP"), "?keep");
        client.send(request);
        return client.read_answer().status;
    }
    bool is_free() {
        return eventually([&] { return budgets["ann"]->used() == 0 && budgets["ben"]->used() == 0; });
    }

    std::map<std::string, std::shared_ptr<Budget>> budgets;
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    TestServer under_test;
};

TEST_CASE("Expect: 100-continue is answered with 503 where the budget has no room for the body", "[http]") {
    SharingServer server(10'000, 10'000);
    CHECK(server.send("ann", 8'000, true) == 200);
    RawClient client(server.under_test.port());
    client.send("POST /p HTTP/1.1\r\nHost: h\r\nX-Client: ben\r\nExpect: 100-continue\r\nContent-Length: 8000\r\n\r\n");
    CHECK(client.read_answer().status == 503);
}

TEST_CASE("bodies in flight have a limit for each client and for all, which kept bodies count against", "[http]") {
    const bool of_client = GENERATE(true, false);
    SharingServer server(of_client ? 1 << 30 : 10'000, of_client ? 10'000 : 1 << 30);
    const std::string other = of_client ? "ann" : "ben";
    for (int i = 0; i < 5; ++i) {  // a rejected body costs nothing
        CHECK(server.send("ann", 10'000) == 200);
        CHECK(server.send("ann", 10'001) == 503);
        CHECK(server.is_free());
    }
    CHECK(server.send("ann", 6'000, true) == 200);
    CHECK(server.budgets["ann"]->used() == 6'000);
    CHECK(server.send(other, 6'000) == 503);
    CHECK(server.send(other, 100, false, true) == 503);
    CHECK(server.send(other, 4'000) == 200);
    if (of_client) CHECK(server.send("ben", 10'000) == 200);
    server.kept.with([](auto& all) { all.clear(); });
    CHECK(server.is_free());
    CHECK(server.send(other, 10'000) == 200);
}

TEST_CASE("a body in chunks counts as it grows", "[http]") {
    SharingServer server(1 << 30, 4 << 20);
    CHECK(server.send("ann", 6 << 20, false, true) == 503);
    CHECK(server.is_free());
    CHECK(server.send("ann", 1 << 20, true, true) == 200);
    CHECK(server.budgets["ann"]->used() >= 1 << 20);
    server.kept.with([](auto& all) { all.clear(); });
    CHECK(server.is_free());
}

// Answers.

/// Pieces of the same bytes, small and large ones in turn, more than one system call takes.
std::vector<net::BodyPart> pieces_of(const std::string& bytes) {
    std::vector<net::BodyPart> parts;
    std::mt19937 random(1);
    const auto all = std::as_bytes(std::span(bytes));
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t most = std::array<std::size_t, 5>{1, 3, 300, 20'000, 200'000}[random() % 5];
        const std::size_t size =
            std::min<std::size_t>(all.size() - at, parts.size() < 3000 ? random() % 3 : random() % most);
        parts.push_back({all.subspan(at, size), nullptr});
        at += size;
    }
    return parts;
}

/// The bytes of a text, made when they are sent.
class MadeBytes final : public net::BodySource {
public:
    explicit MadeBytes(const std::string& bytes, bool fails = false) : bytes_(bytes), fails_(fails) {}
    std::unique_ptr<Reading> read(std::uint64_t offset, std::uint64_t count) const override {
        return std::make_unique<Pieces>(*this, offset, count);
    }

private:
    class Pieces final : public Reading {
    public:
        Pieces(const MadeBytes& source, std::uint64_t offset, std::uint64_t count)
            : source_(source), at_(offset), end_(offset + count) {}
        std::span<const std::byte> next() override {
            if (source_.fails_) throw std::runtime_error("the device is gone");
            piece_ = source_.bytes_.substr(at_, std::min<std::uint64_t>(100'000, end_ - at_));
            at_ += piece_.size();
            return std::as_bytes(std::span(piece_));
        }

    private:
        const MadeBytes& source_;
        std::uint64_t at_;
        const std::uint64_t end_;
        std::string piece_;
    };
    const std::string bytes_;
    const bool fails_;
};

TEST_CASE("an answer is written from where it lies, as it is made, or as its handler writes it", "[http][tls]") {
    enum class How { lies, is_made, is_written };
    const How how = GENERATE(How::lies, How::is_made, How::is_written);
    const std::string bytes = random_bytes(8'000'000);  // more than the system of a client takes at once
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        Response response;
        response.headers.add("X-Equal", request.text() == bytes ? "yes" : "no");
        if (how == How::is_written) {
            response_stream.begin(response);
            for (const net::BodyPart& part : pieces_of(bytes))
                response_stream.write({&part, 1});
        } else if (how == How::lies) {
            response.parts = pieces_of(bytes);
        } else {
            const net::BodyPart all{{}, {}, std::make_shared<MadeBytes>("xx" + bytes + "x"), 0, bytes.size() + 3};
            const std::string_view first(bytes.data(), 1'000);
            response.parts = {{std::as_bytes(std::span(first)), nullptr}, all.part(1'002, bytes.size() - 1'000)};
        }
        return response;
    };
    net::Client client(under_test.options_of_client());
    net::ClientRequest request = text_request("");
    request.parts = pieces_of(bytes);
    for (int i = 0; i < 2; ++i) {
        const auto response = client.send(request);
        CHECK(response.headers.find("X-Equal") == "yes");
        CHECK((response.text() == bytes));
    }
    const auto stats = client.stats();
    CHECK(stats.opened == 1);
    CHECK(stats.bytes_out > 2 * bytes.size());
    CHECK(stats.bytes_in > 2 * bytes.size());
    const auto slow = under_test.raw_client(4096);
    slow->send("GET / HTTP/1.0\r\nHost: here\r\n\r\n");  // the body goes to the end
    const std::string answer = slow->read_to_end();
    CHECK((answer.substr(answer.find("\r\n\r\n") + 4) == bytes));
}

TEST_CASE("HEAD reads nothing of an answer that is made, and one that cannot be made is cut off", "[http]") {
    const QuietLog quiet;
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) {
        Response response;
        response.parts = {{{}, {}, std::make_shared<MadeBytes>(std::string(100, 'x'), true), 0, 100}};
        return response;
    };
    RawClient client(under_test.port());
    client.send("HEAD / HTTP/1.1\r\nHost: here\r\n\r\n");
    CHECK(client.read_answer(true).has("Content-Length: 100\r\n"));
    client.send(get("/"));
    CHECK(client.read_answer().status == 0);  // its body did not come
}

TEST_CASE("the body of an answer goes to the memory that was named, unless it is a rejection", "[http]") {
    EchoServer under_test;
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        return Response::json(request.head.path == "/no" ? 404 : 200, std::string(request.text()));
    };
    net::Client client(options_for(under_test.port()));
    for (const std::size_t size : {1UL, 100UL, 1'000'000UL}) {
        const std::string bytes = random_bytes(size);
        std::string memory(size, '\0');
        net::BodyPlace place{std::as_writable_bytes(std::span(memory))};
        auto request = text_request(bytes);
        request.place = &place;
        const auto response = client.send(request);
        CHECK(response.status == 200);
        CHECK(response.body->size() == 0);
        CHECK(place.filled == size);
        CHECK((memory == bytes));
        place.filled = 0;
        request.path = "/no";
        const auto rejection = client.send(request);
        CHECK(rejection.status == 404);
        CHECK((rejection.text() == bytes));
        CHECK(place.filled == 0);
    }
    CHECK(client.stats().opened == 1);
    for (const std::size_t size : {5UL, 7UL}) {  // another length is rejected before it is read
        std::string memory(6, '\0');
        net::BodyPlace place{std::as_writable_bytes(std::span(memory))};
        auto request = text_request(std::string(size, 'x'));
        request.place = &place;
        CHECK(failure_of(client, request).kind == net::TransportError::Kind::protocol);
        CHECK(place.filled == 0);
    }
}

}  // namespace
}  // namespace shared_tensor::test
