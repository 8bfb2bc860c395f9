#include "net/stream/tls.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "support/process.hpp"
#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

// What only TLS has: certificates, handshakes and records. What both have is tested over both elsewhere.

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::Response;
using net::TransportError;
using std::chrono::milliseconds;

TEST_CASE("the server is known by its address and by its name, one whose certificate is not good is not spoken to",
          "[http][tls]") {
    const TlsFiles& files = tls_files();
    const auto issue = [&](const std::string& name, long from, long until, const std::string& alternatives) {
        Certificate::Options requested;
        requested.valid_from = from;
        requested.valid_until = until;
        requested.alternatives = alternatives;
        files.issue(name, requested);
    };
    issue("expired", -7200, -3600, "IP:127.0.0.1,DNS:localhost");
    issue("early", 3600, 7200, "IP:127.0.0.1,DNS:localhost");
    issue("other name", -3600, 3600, "DNS:example.org,DNS:*.example.org");
    issue("other address", -3600, 3600, "IP:127.0.0.2,DNS:127.0.0.1");
    issue("name only", -3600, 3600, "DNS:localhost");
    files.issue_by_another("other authority");
    files.sign_by_itself("itself");
    const auto error_of = [&](const std::string& certificate, const std::string& host,
                              const std::shared_ptr<const net::TlsClient>& trust) -> std::optional<TransportError> {
        net::ServerOptions options;
        options.tls = files.tls(certificate);
        EchoServer under_test(options);
        auto client_options = files.client_options(under_test.port());
        client_options.endpoint = files.endpoint(under_test.port(), host);
        client_options.endpoint.tls_client = trust;
        net::Client client(client_options);
        try {
            const auto response = client.send(text_request("x"));
            CHECK(response.text() == "x");
            return std::nullopt;
        } catch (const TransportError& error) {
            CHECK(under_test.server.stats().requests == 0);
            return error;
        }
    };
    for (const char* host : {"127.0.0.1", "localhost"})
        CHECK_FALSE(error_of("server", host, files.client()));
    CHECK_FALSE(error_of("name only", "localhost", files.client()));
    for (const char* name :
         {"expired", "early", "other name", "other address", "name only", "other authority", "itself", "server"}) {
        INFO(name);
        const bool trusts_system = std::string_view(name) == "server";  // which knows no authority of ours
        const auto error = error_of(name, "127.0.0.1", trusts_system ? net::TlsClient::load({}) : files.client());
        REQUIRE(error);
        CHECK(error->kind == TransportError::Kind::untrusted);
        CHECK_FALSE(error->sent);
        CHECK_THAT(error->what(), ContainsSubstring("127.0.0.1"));
    }
}

TEST_CASE("the handler learns whose certificate a client showed, and whether it is good, if it asked for one",
          "[http][tls]") {
    const TlsFiles& files = tls_files();
    const auto issue = [&](const std::string& name, long until, bool by_another = false) {
        Certificate::Options requested;
        requested.name = name;
        requested.alternatives.clear();
        requested.valid_from = -7200;
        requested.valid_until = until;
        const std::string file = name.empty() ? "nameless" : name;
        by_another ? files.issue_by_another(file, requested) : files.issue(file, requested);
    };
    issue("alice", 3600);
    issue("stranger", 3600, true);
    issue("late", -3600);
    issue("", 3600);
    const auto seen_of = [&](const std::string& name, bool asks = true) {
        net::ServerOptions server_options;
        auto server_files = files.server_files();
        if (asks) server_files.authorities = files.ca();
        server_options.tls = net::TlsServer::load(server_files);
        EchoServer under_test(server_options);
        under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
            const auto& certificate = request.head.peer.certificate;
            return Response::json(200,
                                  certificate ? certificate->name + (certificate->is_good ? " good" : " bad") : "none");
        };
        auto options = files.client_options(under_test.port());
        options.endpoint.tls_client = files.client(name);
        net::Client client(options);
        const std::string first(client.send(text_request("")).text());
        CHECK(client.send(text_request("")).text() == first);  // the second request of a connection too
        return first;
    };
    CHECK(seen_of("alice") == "alice good");
    CHECK(seen_of("alice", false) == "none");
    CHECK(seen_of("stranger") == "stranger bad");
    CHECK(seen_of("late") == "late bad");
    CHECK(seen_of("") == "none");
    const std::string nameless = seen_of("nameless");
    CHECK(nameless.size() == std::string("sha256: good").size() + 64);
    CHECK(nameless.starts_with("sha256:"));
    CHECK(nameless.ends_with(" good"));
}

TEST_CASE("files that cannot be used are named, with what is wrong with them", "[http][tls]") {
    const TlsFiles& files = tls_files();
    files.issue("another");
    const Certificate own{Certificate::Options()};
    own.write_certificate(files.file("own.pem"));
    own.write_certificate(files.file("certificate.key"));
    own.write_key(files.file("own.key"), 0640);
    own.write_key(files.file("open.key"), 0644);
    own.write_key(files.file("group-writable.key"), 0660);
    own.write_key(files.file("locked.key"), 0600, "a pass phrase");
    std::filesystem::permissions(files.file("certificate.key"), std::filesystem::perms::owner_read);
    const struct {
        std::string certificate, key, authorities;
        std::string wrong, why;
    } table[] = {
        {"missing", "own.key", "", "missing", ""},
        {"own.pem", "missing", "", "missing", ""},
        {"own.pem", "own.key", "missing", "missing", ""},
        {"own.pem", "open.key", "", "open.key", "chmod 600"},
        {"own.pem", "group-writable.key", "", "group-writable.key", "chmod 600"},
        {"own.pem", "another.key", "", "another.key", files.file("own.pem")},
        {"own.pem", "locked.key", "", "locked.key", "pass phrase"},
        {"own.pem", "certificate.key", "", "certificate.key", ""},
        {"own.key", "own.key", "", "own.key", "PEM"},
        {"own.pem", "own.key", "own.key", "own.key", "PEM"},
    };
    const std::string pem = files.file("own.pem"), missing = files.file("missing");
    CHECK_NOTHROW(net::TlsServer::load({pem, files.file("own.key"), ""}));
    CHECK_NOTHROW(net::TlsServer::load({pem, files.file("own.key"), files.ca()}));
    for (const auto& [certificate, key, authorities, wrong, why] : table) {
        INFO(certificate << ' ' << key << ' ' << authorities);
        const TlsOptions options{files.file(certificate), files.file(key),
                                 authorities.empty() ? "" : files.file(authorities)};
        CHECK_THROWS_WITH(net::TlsServer::load(options),
                          ContainsSubstring(files.file(wrong) + ": ") && ContainsSubstring(why));
    }
    CHECK_THROWS_WITH(net::TlsClient::load({.authorities = missing}), ContainsSubstring(missing + ": "));
    CHECK_THROWS_WITH(net::TlsClient::load({pem, missing, ""}), ContainsSubstring(missing + ": "));
}

// Clients that break off, stall, lie or flood.

constexpr milliseconds kSoon{300};

net::ServerOptions options_of(milliseconds net::ServerOptions::*which) {
    auto options = patient_options();
    options.*which = kSoon;
    return options;
}

/// Whether a client is answered that comes now; with limits of the server's that a loaded machine may miss once.
bool serves(const SafeServer& under_test) {
    return eventually([&] {
        net::Client client(under_test.options_of_client());
        try {
            return client.send(text_request("fine")).text() == "fine";
        } catch (const TransportError&) {
            return false;
        }
    });
}

bool is_cut(const SafeServer& under_test, std::size_t connections = 0) {
    return eventually([&] { return under_test.server.stats().connections == connections; });
}

TEST_CASE("a client that does not finish its handshake in time is cut", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    const std::string hello = RawTls(RawClient(under_test.port())).hello();
    REQUIRE(is_cut(under_test));
    for (const std::size_t size : {std::size_t{1}, std::size_t{4}, std::size_t{6}, hello.size() / 2, hello.size()}) {
        INFO(size << " bytes of " << hello.size());
        RawClient client(under_test.port());
        client.send(hello.substr(0, size));
        client.read_to_end();
        CHECK(is_cut(under_test));
    }
    CHECK(serves(under_test));
}

TEST_CASE("a client that trickles its handshake is not given more time for each byte", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    std::string hello = RawTls(RawClient(under_test.port())).hello();
    REQUIRE(is_cut(under_test));
    // a record that says it is long, and never is
    hello[3] = static_cast<char>(0x3f);
    hello.append(20'000, 'x');
    RawClient client(under_test.port());
    REQUIRE(is_cut(under_test, 1));
    std::size_t sent = 0;
    while (sent < hello.size() && under_test.server.stats().connections > 0 && client.send(hello.substr(sent, 1))) {
        ++sent;
        std::this_thread::sleep_for(milliseconds(2));
    }
    CHECK(sent < hello.size());
    CHECK(serves(under_test));
}

TEST_CASE("a client that stops within a record is cut like one that stops within a request", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    for (const std::size_t size : {1, 4, 6, 30}) {
        INFO(size << " bytes of a record");
        CHECK(eventually([&] {  // the handshake itself may be late once
            try {
                SafeClient client(RawClient(under_test.port()));
                client.tls().socket().send(client.tls().seal(get("/")).substr(0, size));
                return client.read_answer().status == 408;
            } catch (const std::runtime_error&) {
                return false;
            }
        }));
        CHECK(is_cut(under_test));
    }
    CHECK(under_test.server.stats().requests == 0);
    CHECK(serves(under_test));
}

TEST_CASE("garbage instead of a handshake, or behind it, ends the connection and nothing else", "[http][tls]") {
    SafeServer under_test(patient_options());
    const std::string hello = RawTls(RawClient(under_test.port())).hello();
    std::string damaged = hello;
    damaged[hello.size() / 2] = static_cast<char>(damaged[hello.size() / 2] ^ 0x55);
    std::vector<std::string> cases = {std::string(5, '\0'),      std::string(70'000, '\xff'), random_bytes(100'000),
                                      "SSH-2.0-OpenSSH_9.2\r\n", hello + random_bytes(100),   hello + hello};
    for (const std::string& bytes : cases) {
        RawClient client(under_test.port());
        client.send(bytes);
        client.half_close();
        client.read_to_end();
        CHECK(is_cut(under_test));
    }
    SafeClient client(RawClient(under_test.port()));
    std::string record = client.tls().seal(post("/", "x"));
    record.back() = static_cast<char>(record.back() ^ 1);
    client.tls().socket().send(record);
    CHECK(client.read_to_end().empty());
    CHECK_FALSE(client.tls().ended_well());
    CHECK(under_test.server.stats().requests == 0);
    CHECK(serves(under_test));
}

/// Asks for new keys; what is to be sent for that.
std::string asks_for_keys(RawTls& client) {
    SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
    SSL_do_handshake(client.ssl());
    return client.seal("");
}

TEST_CASE("a client that asks for new keys is served, but cut if it asks without end and takes none", "[http][tls]") {
    SafeServer under_test(patient_options());
    SafeClient takes(RawClient(under_test.port()));
    for (int i = 0; i < 50; ++i) {
        takes.tls().socket().send(asks_for_keys(takes.tls()));
        takes.send(post("/", std::to_string(i)));
        REQUIRE(takes.read_answer().body == std::to_string(i));
    }
    SafeClient greedy(RawClient(under_test.port(), "127.0.0.1", 4096));
    std::size_t asked = 0;
    constexpr std::size_t kMany = 200'000;  // some 5 MB of answers
    bool is_taken = true;
    while (is_taken && asked < kMany) {
        std::string some;
        for (int i = 0; i < 100; ++i, ++asked)
            some += asks_for_keys(greedy.tls());
        is_taken = greedy.tls().socket().send(some);
    }
    CHECK_FALSE(is_taken);
    greedy.close();
    takes.close();
    CHECK(is_cut(under_test));
    CHECK(serves(under_test));
}

// Servers.

TEST_CASE("a server that closes within the handshake is an error, and nothing was sent", "[http][tls]") {
    RawServer server;
    for (const bool reset : {false, true}) {
        std::jthread thread([&] {
            auto connection = server.accept();
            connection.read_bytes(50);
            if (reset) connection.reset();
        });
        net::Client client(tls_files().client_options(server.port()));
        const auto error = failure_of(client);
        CHECK(error.kind == TransportError::Kind::broken);
        CHECK_FALSE(error.sent);
    }
}

TEST_CASE("a large request goes out whole although the server sends session tickets meanwhile", "[http][tls]") {
    RawServer server;
    const std::string bytes = random_bytes(30'000'000);
    std::jthread thread([&] {
        SafeClient connection(RawTls(server.accept(), tls_files().server_files()));  // OpenSSL's default: two tickets
        const RawAnswer request = connection.read_answer();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" +
                        std::string(request.body == bytes ? "1" : "0"));
        connection.read_to_end();
    });
    net::Client client(tls_files().client_options(server.port()));
    CHECK(client.send(text_request(bytes)).text() == "1");
}

}  // namespace
}  // namespace shared_tensor::test
