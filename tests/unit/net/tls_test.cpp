#include "net/stream/tls.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <thread>

#include "raw_client.hpp"
#include "tls_peer.hpp"
#include "unit/net/web_socket/web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::ClientRequest;
using net::Response;
using net::TransportError;
using std::chrono::milliseconds;

/// Pieces of the same bytes, small and large ones in turn.
std::vector<net::BodyPart> pieces_of(const std::string& bytes) {
    std::vector<net::BodyPart> parts;
    std::mt19937 random(bytes.size());
    const auto all = std::as_bytes(std::span(bytes));
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t most = std::array<std::size_t, 4>{3, 300, 20'000, 200'000}[random() % 4];
        const std::size_t size = std::min<std::size_t>(all.size() - at, random() % most);
        parts.push_back({all.subspan(at, size), nullptr});
        at += size;
    }
    return parts;
}

TEST_CASE("bodies of every size come back over TLS byte for byte", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    net::Client client(under_test.options_of_client());
    for (const std::size_t size :
         {0, 1, 16'383, 16'384, 16'385, 65'535, 65'536, 65'537, 131'073, 1'000'000, 20'000'000}) {
        INFO(size);
        const std::string bytes = random_bytes(size);
        CHECK((client.send(text_request(bytes)).text() == bytes));
    }
    CHECK(client.stats().opened == 1);
    CHECK(client.stats().reused == 10);
}

TEST_CASE("requests and answers of many small and large parts arrive whole over TLS", "[http][tls]") {
    const std::string bytes = random_bytes(5'000'000);
    SafeServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        Response response;
        response.parts = pieces_of(bytes);
        response.headers.add("X-Equal", request.text() == bytes ? "yes" : "no");
        return response;
    };
    under_test.start();
    net::Client client(under_test.options_of_client());
    for (int i = 0; i < 3; ++i) {
        ClientRequest request = text_request("");
        request.parts = pieces_of(bytes);
        const auto response = client.send(request);
        CHECK(response.headers.find("X-Equal") == "yes");
        CHECK((response.text() == bytes));
    }
}

TEST_CASE("an answer that is made as it is sent arrives whole over TLS", "[http][tls]") {
    const std::string bytes = random_bytes(3'000'000);
    SafeServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        response_stream.begin({});
        for (const net::BodyPart& part : pieces_of(bytes))
            response_stream.write({&part, 1});
        return Response();
    };
    under_test.start();
    net::Client client(under_test.options_of_client());
    CHECK((client.send(text_request("")).text() == bytes));
    CHECK((client.send(text_request("")).text() == bytes));
    CHECK(client.stats().opened == 1);
}

TEST_CASE("many clients at once all get their own answers over TLS", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    net::Client client(under_test.options_of_client());
    std::vector<std::jthread> threads;
    std::atomic<int> wrong{0};
    for (std::size_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            net::Client own(under_test.options_of_client());
            for (std::size_t i = 0; i < 20; ++i) {
                const std::string text = random_bytes(1 + (t * 100 + i) * 37);
                for (net::Client* one : {&own, &client}) {
                    if (one->send(text_request(text)).text() != text) ++wrong;
                }
            }
        });
    }
    threads.clear();
    CHECK(wrong == 0);
    CHECK(client.stats().opened <= 8);
}

TEST_CASE("a client that reads slowly gets every byte over TLS", "[http][tls]") {
    const std::string bytes = random_bytes(24'000'000);  // more than its system takes at once
    const bool as_it_is_made = GENERATE(false, true);
    SafeServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        Response response;
        if (as_it_is_made) {
            response_stream.begin({});
            for (const net::BodyPart& part : pieces_of(bytes))
                response_stream.write({&part, 1});
        } else {
            response.parts = pieces_of(bytes);
        }
        return response;
    };
    under_test.start();
    RawTls client(narrow_client(under_test.port(), 4096));
    REQUIRE(client.shake_hands());
    // HTTP/1.0 without keep-alive: the body goes to the end
    client.send("GET / HTTP/1.0\r\nHost: here\r\n\r\n");
    std::string answer;
    for (std::string some = client.read_some(1000); !some.empty(); some = client.read_some(1000))
        answer += some;
    const std::size_t head = answer.find("\r\n\r\n");
    REQUIRE(head != std::string::npos);
    CHECK((answer.substr(head + 4) == bytes));
    CHECK(client.ended_well());
}

TEST_CASE("requests that come in one record are all answered in their order", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    RawTls client((RawClient(under_test.port())));
    REQUIRE(client.shake_hands());
    std::string requests, bodies;
    for (int i = 0; i < 100; ++i)
        requests += post("/", "body " + std::to_string(i));
    requests += get("/", "Connection: close\r\n");
    client.send(requests);
    const std::string answers = client.read_to_end();
    std::size_t at = 0;
    for (int i = 0; i < 100; ++i) {
        at = answers.find("\r\n\r\nbody " + std::to_string(i) + "HTTP/1.1", at);
        REQUIRE(at != std::string::npos);
    }
    CHECK(client.ended_well());
}

TEST_CASE("a request whose records come byte by byte is understood", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    RawTls client((RawClient(under_test.port())));
    REQUIRE(client.shake_hands());
    for (const char byte : client.seal_each({"POST / HTTP/1.1\r\nHost: here\r\n", "Content-Length: 2\r\n\r\nab"}))
        client.socket().send({&byte, 1});
    CHECK(client.read_some().ends_with("ab"));
}

TEST_CASE("the server is known by its address and by its name", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    for (const char* host : {"127.0.0.1", "localhost"}) {
        INFO(host);
        auto options = under_test.options_of_client();
        options.endpoint = under_test.endpoint(under_test.port(), host);
        net::Client client(options);
        CHECK(client.send(text_request("x")).text() == "x");
    }
}

TEST_CASE("a server whose certificate is not good is not spoken to", "[http][tls]") {
    TlsFiles files;
    Certificate::Options expired, early, of_other_name, of_other_address, by_name_only;
    expired.valid_from = -7200;
    expired.valid_until = -3600;
    early.valid_from = 3600;
    early.valid_until = 7200;
    of_other_name.name = "example.org";
    of_other_name.alternatives = "DNS:example.org,DNS:*.example.org";
    of_other_address.alternatives = "IP:127.0.0.2,DNS:127.0.0.1";
    by_name_only.alternatives = "DNS:localhost";
    files.issue("expired", expired);
    files.issue("early", early);
    files.issue("other name", of_other_name);
    files.issue("other address", of_other_address);
    files.issue("name only", by_name_only);
    files.issue_by_another("other authority", {});
    files.sign_by_itself("itself", {});
    for (const char* name :
         {"expired", "early", "other name", "other address", "name only", "other authority", "itself"}) {
        INFO(name);
        TestServer under_test(with_tls(files.tls(name)));
        under_test.start();
        net::Client client(files.client_options(under_test.port()));
        const auto error = failure_of(client);
        CHECK(error.kind == TransportError::Kind::untrusted);
        CHECK_FALSE(error.sent);
        CHECK_THAT(error.what(), ContainsSubstring("127.0.0.1"));
        CHECK(under_test.server.stats().requests == 0);
    }
}

TEST_CASE("without authorities of its own a client trusts those of the system", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    auto options = under_test.options_of_client();
    options.endpoint.tls_client = net::TlsClient::load({});
    net::Client client(options);
    CHECK(failure_of(client).kind == TransportError::Kind::untrusted);
}

TEST_CASE("nothing older than TLS 1.3 is spoken", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    RawTls old(RawClient(under_test.port()), TLS1_2_VERSION);
    CHECK_FALSE(old.shake_hands());
    RawTls fresh(RawClient(under_test.port()), TLS1_3_VERSION);
    CHECK(fresh.shake_hands());
}

TEST_CASE("a client that speaks plain HTTP to TLS is told so", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    for (const char* method : {"GET", "POST", "PUT", "HEAD"}) {
        INFO(method);
        RawClient client(under_test.port());
        client.send(method + std::string(" / HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"));
        const auto answer = client.read_answer();
        CHECK(answer.status == 400);
        CHECK_THAT(answer.body, ContainsSubstring("https://"));
        CHECK(client.is_closed());
    }
    CHECK(under_test.server.stats().requests == 0);
}

TEST_CASE("a client that speaks TLS to plain HTTP is told so", "[http][tls]") {
    const TlsFiles files;
    TestServer plain;
    plain.start();
    net::Client client(files.client_options(plain.port()));
    const auto error = failure_of(client);
    CHECK(error.kind == TransportError::Kind::protocol);
    CHECK_FALSE(error.sent);
    CHECK_THAT(error.what(), ContainsSubstring("http://"));
}

TEST_CASE("a Unix socket of a server with TLS stays plain", "[http][tls]") {
    const TlsFiles files;
    auto options = with_tls(files.tls());
    options.unix_socket = files.path("socket");
    EchoServer under_test(options);
    net::ClientOptions client_options;
    client_options.endpoint = net::Endpoint::parse("unix:" + options.unix_socket);
    net::Client client(client_options);
    CHECK(client.send(text_request("x")).text() == "x");
}

/// "NAME good", "NAME bad" or "none".
std::string certificate_of(const net::Request& request) {
    const auto& certificate = request.head.peer.certificate;
    return certificate ? certificate->name + (certificate->is_good ? " good" : " bad") : "none";
}

TEST_CASE("the handler learns whose certificate a client showed, and whether it is good", "[http][tls]") {
    TlsFiles files;
    const auto issue = [&](const std::string& name, bool by_another, long until) {
        Certificate::Options requested;
        requested.name = name;
        requested.alternatives.clear();
        requested.valid_from = -7200;
        requested.valid_until = until;
        const std::string file = name.empty() ? "nameless" : name;
        by_another ? files.issue_by_another(file, requested) : files.issue(file, requested);
    };
    issue("alice", false, 3600);
    issue("bob", false, 3600);
    issue("stranger", true, 3600);
    issue("late", false, -3600);
    issue("", false, 3600);
    auto server_files = files.server_files();
    server_files.authorities = files.ca();
    TestServer under_test(with_tls(net::TlsServer::load(server_files)));
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        return Response::json(200, certificate_of(request));
    };
    under_test.start();
    const auto seen_of = [&](const std::string& name) {
        auto options = files.client_options(under_test.port());
        options.endpoint.tls_client = files.client(name);
        net::Client client(options);
        const std::string first(client.send(text_request("")).text());
        CHECK(client.send(text_request("")).text() == first);  // the second request of a connection too
        return first;
    };
    for (int i = 0; i < 2; ++i) {
        CHECK(seen_of("alice") == "alice good");
        CHECK(seen_of("stranger") == "stranger bad");
        CHECK(seen_of("late") == "late bad");
        CHECK(seen_of("bob") == "bob good");
        CHECK(seen_of("") == "none");
        const std::string nameless = seen_of("nameless");
        CHECK(nameless.size() == std::string("sha256: good").size() + 64);
        CHECK(nameless.starts_with("sha256:"));
        CHECK(nameless.ends_with(" good"));
    }
}

TEST_CASE("a certificate that nobody asked for is not looked at", "[http][tls]") {
    SafeServer under_test;
    under_test.issue("alice", {});
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        return Response::json(200, certificate_of(request));
    };
    under_test.start();
    auto options = under_test.options_of_client();
    options.endpoint.tls_client = under_test.client("alice");
    net::Client client(options);
    CHECK(client.send(text_request("")).text() == "none");
}

TEST_CASE("a new certificate is for new connections while the old ones go on", "[http][tls]") {
    SafeServer under_test;
    under_test.issue_by_another("new", {});
    under_test.start();
    net::Client old(under_test.options_of_client());
    REQUIRE(old.send(text_request("a")).text() == "a");
    under_test.server.use_tls(under_test.tls("new"));
    CHECK(old.send(text_request("b")).text() == "b");
    CHECK(old.stats().opened == 1);
    net::Client late(under_test.options_of_client());
    CHECK(failure_of(late).kind == TransportError::Kind::untrusted);
    auto options = under_test.options_of_client();
    options.endpoint.tls_client = net::TlsClient::load({.authorities = under_test.other_ca()});
    net::Client fresh(options);
    CHECK(fresh.send(text_request("c")).text() == "c");
}

TEST_CASE("files that cannot be used are named, with what is wrong with them", "[http][tls]") {
    TlsFiles files;
    files.issue("another", {});
    const Certificate own{Certificate::Options()};
    own.write_certificate(files.path("own.pem"));
    own.write_key(files.path("open.key"), 0644);
    own.write_key(files.path("group-writable.key"), 0660);
    own.write_key(files.path("locked.key"), 0600, "a pass phrase");
    own.write_key(files.path("own.key"), 0640);
    const auto why = [&](const std::string& certificate, const std::string& key, const std::string& ca) {
        try {
            net::TlsServer::load({certificate, key, ca});
        } catch (const std::invalid_argument& error) {
            return std::string(error.what());
        }
        return std::string("nothing");
    };
    const std::string pem = files.path("own.pem"), key = files.path("own.key"), missing = files.path("missing");
    CHECK(why(pem, key, "") == "nothing");
    CHECK(why(pem, key, files.ca()) == "nothing");
    CHECK_THAT(why(missing, key, ""), ContainsSubstring(missing + ": "));
    CHECK_THAT(why(pem, missing, ""), ContainsSubstring(missing + ": "));
    CHECK_THAT(why(pem, key, missing), ContainsSubstring(missing + ": "));
    CHECK_THAT(why(pem, files.path("open.key"), ""),
               ContainsSubstring(files.path("open.key") + ": ") && ContainsSubstring("chmod 600"));
    CHECK_THAT(why(pem, files.path("group-writable.key"), ""), ContainsSubstring("chmod 600"));
    CHECK_THAT(why(pem, files.path("another.key"), ""),
               ContainsSubstring(files.path("another.key") + ": ") && ContainsSubstring(pem));
    CHECK_THAT(why(pem, files.path("locked.key"), ""),
               ContainsSubstring(files.path("locked.key") + ": ") && ContainsSubstring("pass phrase"));
    CHECK_THAT(why(key, key, ""), ContainsSubstring(key + ": ") && ContainsSubstring("PEM"));
    own.write_certificate(files.path("no.key"));
    std::filesystem::permissions(files.path("no.key"), std::filesystem::perms::owner_read);
    CHECK_THAT(why(pem, files.path("no.key"), ""), ContainsSubstring(files.path("no.key") + ": "));
    CHECK_THAT(why(pem, key, key), ContainsSubstring(key + ": ") && ContainsSubstring("PEM"));
    CHECK_THROWS_WITH(net::TlsClient::load({.authorities = missing}), ContainsSubstring(missing + ": "));
    CHECK_THROWS_WITH(net::TlsClient::load({pem, missing, ""}), ContainsSubstring(missing + ": "));
}

}  // namespace
}  // namespace shared_tensor::test
