#include "server/auth/access.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>

using namespace shared_tensor;
using namespace shared_tensor::server;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kSecret = "0123456789abcdef";
const std::string kOther = "fedcba9876543210";

net::RequestHead request(const std::string& host, const std::string& authorization = "") {
    net::RequestHead head;
    head.method = "POST";
    head.path = "/jsonrpc";
    head.peer.ip = "127.0.0.1";
    head.peer.uid = ::getuid();
    if (!host.empty()) head.headers.add("Host", host);
    if (!authorization.empty()) head.headers.add("Authorization", authorization);
    return head;
}

/// What checks requests, with what it lives in.
struct Fixture {
    explicit Fixture(const ServerOptions& options, std::vector<AccessToken> tokens = {})
        : access(options, std::move(tokens), clients) {
        access.set_port(2537);
    }
    /// The principal's name, or the status of the rejection.
    std::string verdict(const net::RequestHead& head) const {
        const auto checked = access.check(head);
        if (const auto* rejected = std::get_if<Rejection>(&checked)) return std::to_string(rejected->status);
        return std::get<Principal>(checked).name;
    }
    Principal principal(const net::RequestHead& head) const { return std::get<Principal>(access.check(head)); }

    Clients clients{{0, 0, 0}};
    server::Access access;
};

ServerOptions remote() {
    ServerOptions options;
    options.host = "0.0.0.0";
    return options;
}

std::string bearer(const std::string& secret) { return "Bearer " + secret; }

const std::string kOurHost = "127.0.0.1:2537";
const std::string kOwn = "uid:" + std::to_string(::getuid());

}  // namespace

TEST_CASE("on loopback a request must mean this server by one Host, and come from its user or root", "[server]") {
    const Fixture fixture{ServerOptions()};
    for (const char* host :
         {"127.0.0.1:2537", "localhost:2537", "[::1]:2537", "LOCALHOST:2537", "127.0.0.2:2537", "127.255.0.1:2537"})
        CHECK(fixture.verdict(request(host)) == kOwn);
    for (const char* host :
         {"", ":2537", "127.0.0.1", "127.0.0.1:80", "[::1]", "::1:2537", "127.evil.org:2537", "128.0.0.1:2537",
          "example.org:2537", "example.org", "localhost.org:2537", "localhost:12537"})
        CHECK(fixture.verdict(request(host)) == "403");
    auto twice = request(kOurHost), foreign = request(kOurHost);
    twice.headers.add("Host", kOurHost);
    CHECK(fixture.verdict(twice) == "403");
    for (const auto& [uid, verdict] : std::vector<std::pair<std::optional<uid_t>, std::string>>{
             {::getuid() + 1, "403"}, {std::nullopt, "403"}, {0, "uid:0"}}) {
        foreign.peer.uid = uid;
        CHECK(fixture.verdict(foreign) == verdict);
    }
}

TEST_CASE("When the kernel cannot be asked who is calling, the answer is to come again, with the reason", "[server]") {
    const Fixture fixture{ServerOptions{}};
    net::RequestHead head = request(kOurHost);
    head.peer.uid.reset();
    head.peer.uid_error = EMFILE;
    CHECK(fixture.verdict(head) == "503");
    CHECK_THAT(std::get<Rejection>(fixture.access.check(head)).reason, ContainsSubstring("Too many open files"));
}

TEST_CASE("pages of origins that were not named one by one are rejected, whatever they show", "[server]") {
    ServerOptions options;
    options.allowed_origins = {"https://example.org"};
    const Fixture fixture(options, {{"ann", kSecret}});
    const auto from = [&](const std::string& origin) {
        auto head = request(kOurHost, bearer(kSecret));
        head.headers.add("Origin", origin);
        return head;
    };
    CHECK(fixture.verdict(from("https://example.org")) == "token:ann");
    CHECK_FALSE(fixture.access.check_place(from("https://example.org")));
    for (const char* origin : {"http://example.org", "https://example.org.evil", "https://EXAMPLE.org", "null", "",
                               "https://example.org:444"}) {
        CHECK(fixture.verdict(from(origin)) == "403");
        CHECK(fixture.access.check_place(from(origin)));
    }
    auto twice = from("https://example.org");
    twice.headers.add("Origin", "https://example.org");
    CHECK(fixture.verdict(twice) == "403");
    for (const char* origin : {"*", "null", "example.org", "https://example.org/", "https://EXAMPLE.org", "https://"}) {
        INFO(origin);
        options.allowed_origins = {"https://example.org", origin};
        CHECK_THROWS_AS(Fixture(options), std::invalid_argument);
    }
}

TEST_CASE("a page of the server itself is admitted: the same scheme and host, and a Host that is sure", "[server]") {
    const auto from = [](const std::string& host, const std::string& origin) {
        auto head = request(host);
        head.headers.add("Origin", origin);
        return head;
    };
    const Fixture local{ServerOptions()};
    for (const char* host : {"127.0.0.1:2537", "localhost:2537", "[::1]:2537"})
        CHECK(local.verdict(from(host, "http://" + std::string(host))) == kOwn);
    for (const char* origin : {"https://127.0.0.1:2537", "http://127.0.0.1", "http://localhost:2537", "null"})
        CHECK(local.verdict(from(kOurHost, origin)) == "403");
    CHECK(local.verdict(from("evil.org:2537", "http://evil.org:2537")) == "403");  // a name that DNS bound to 127.0.0.1
    auto twice = from(kOurHost, "http://" + kOurHost);
    twice.headers.add("Host", "evil.org");
    CHECK(local.verdict(twice) == "403");

    ServerOptions off;
    off.dashboard = false;
    CHECK(Fixture(off).verdict(from(kOurHost, "http://" + kOurHost)) == "403");

    auto insecure = remote();
    insecure.insecure = true;  // nothing but Host tells the own page, and Host is not checked
    CHECK(Fixture(insecure).verdict(from("10.0.0.1:2537", "http://10.0.0.1:2537")) == "anyone");
    CHECK(Fixture(insecure).verdict(from("[fe80::1]", "http://[fe80::1]")) == "anyone");
    CHECK(Fixture(insecure).verdict(from("evil.org:2537", "http://evil.org:2537")) == "403");
    const Fixture tokens(remote(), {{"ann", kSecret}});  // no other page knows the token
    CHECK(tokens.verdict(from("gpu-host:2537", "http://gpu-host:2537")) == "401");

    auto with_tls = remote();
    with_tls.tls.certificate = "server.pem";
    const Fixture tls(with_tls, {{"ann", kSecret}});
    CHECK_FALSE(tls.access.check_place(from("gpu-host:2537", "https://gpu-host:2537")));
    CHECK(tls.access.check_place(from("gpu-host:2537", "http://gpu-host:2537")));
}

TEST_CASE("files of the dashboard need no token, but everything else that a request needs", "[server]") {
    const auto verdict = [](const Fixture& fixture, const net::RequestHead& head) {
        const auto rejected = fixture.access.check_page(head);
        return rejected ? rejected->status : 200;
    };
    const Fixture tokens(ServerOptions(), {{"ann", kSecret}}), own{ServerOptions()};
    auto foreign = request(kOurHost), other_user = request(kOurHost);
    foreign.headers.add("Origin", "https://evil.org");
    other_user.peer.uid = ::getuid() + 1;
    CHECK(verdict(tokens, request(kOurHost)) == 200);
    CHECK(verdict(tokens, other_user) == 200);
    CHECK(verdict(tokens, request("evil.org")) == 403);
    CHECK(verdict(tokens, foreign) == 403);
    CHECK(verdict(own, request(kOurHost)) == 200);
    CHECK(verdict(own, other_user) == 403);
    auto options = remote();
    options.tls.authorities = "ca.pem";
    CHECK(verdict(Fixture(options, {{"ann", kSecret}}), request("x")) == 401);
}

TEST_CASE("a page names its token as a subprotocol of its WebSocket", "[server]") {
    const auto offering = [](std::initializer_list<const char*> lists) {
        net::Headers headers;
        for (const char* list : lists)
            headers.add("Sec-WebSocket-Protocol", list);
        return headers;
    };
    CHECK(token_of_page(offering({"shared-tensor, shared-tensor.token.a%20%28b%29%2F"})) == "a (b)/");
    CHECK_FALSE(token_of_page(offering({})));
    CHECK_FALSE(token_of_page(offering({"shared-tensor"})));
    CHECK_FALSE(token_of_page(offering({"shared-tensor.token.%zz"})));
    CHECK_FALSE(token_of_page(offering({"shared-tensor.token.a, shared-tensor.token.b"})));
    CHECK_FALSE(token_of_page(offering({"shared-tensor.token.a", "shared-tensor.token.b"})));
    const Fixture fixture(ServerOptions(), {{"ann", kSecret}, {"ben", kOther}});
    const std::string protocols = "shared-tensor, shared-tensor.token." + kSecret;
    auto head = request(kOurHost), both = request(kOurHost, bearer(kOther));
    head.headers.add("Sec-WebSocket-Protocol", protocols);
    both.headers.add("Sec-WebSocket-Protocol", protocols);
    CHECK(fixture.verdict(head) == "token:ann");
    CHECK(fixture.verdict(both) == "token:ben");
}

TEST_CASE("with tokens nobody gets in without one, and what it allows goes with whom it let in", "[server]") {
    const Fixture fixture(ServerOptions(), {{"ann", kSecret, false, {"add"}}, {"ben", kOther, true}});
    CHECK(fixture.verdict(request(kOurHost, bearer(kSecret))) == "token:ann");
    CHECK(fixture.verdict(request(kOurHost, "bearer   " + kOther)) == "token:ben");
    const auto ann = fixture.principal(request(kOurHost, bearer(kSecret)));
    CHECK_FALSE(ann.admin);
    CHECK(ann.may_call("add"));
    CHECK_FALSE(ann.may_call("scale"));
    CHECK(fixture.principal(request(kOurHost, bearer(kOther))).admin);
    for (const std::string& wrong :
         {std::string(), bearer(""), bearer(kSecret + "0"), bearer(kSecret.substr(1)), "Basic " + kSecret, kSecret})
        CHECK(fixture.verdict(request(kOurHost, wrong)) == "401");
    auto twice = request(kOurHost, bearer(kSecret));
    twice.headers.add("Authorization", bearer(kSecret));
    CHECK(fixture.verdict(twice) == "401");
    CHECK(std::holds_alternative<Rejection>(fixture.access.check_local(::getuid(), "")));
    CHECK(std::holds_alternative<Principal>(fixture.access.check_local(::getuid() + 1, kSecret)));
}

TEST_CASE("nobody listens beyond loopback for everybody by mistake", "[server]") {
    CHECK_THROWS_WITH(Fixture(remote()), ContainsSubstring("0.0.0.0"));
    CHECK_THROWS_WITH(Fixture(remote(), {{"ann", "short"}}), ContainsSubstring("\"ann\""));  // can be guessed
    CHECK_NOTHROW(Fixture(remote(), {{"ann", kSecret}}));
    auto insecure = remote(), with_certificates = remote(), named = remote();
    insecure.insecure = true;
    CHECK_NOTHROW(Fixture(insecure));
    with_certificates.tls.authorities = "ca.pem";
    CHECK_NOTHROW(Fixture(with_certificates));
    named.host = "127.example.org";
    CHECK_THROWS_WITH(Fixture(named), ContainsSubstring("127.example.org"));
    for (const char* host : {"127.0.0.1", "127.200.3.4", "::1", "[::1]", "localhost"})
        CHECK(is_loopback_host(host));
    for (const char* host : {"127.example.org", "127.0.0.1.example.org", "127.", "128.0.0.1", "0.0.0.0", "::", "host"})
        CHECK_FALSE(is_loopback_host(host));
}

TEST_CASE("who kept its token keeps its grant; who lost it, or has another one now, is revoked", "[server]") {
    const AccessToken kept_token{"kept", kSecret, false, {"add"}};
    Fixture fixture(ServerOptions(), {kept_token, {"gone", kOther}});
    const auto kept = fixture.principal(request(kOurHost, bearer(kSecret)));
    const auto gone = fixture.principal(request(kOurHost, bearer(kOther)));
    CHECK_FALSE(fixture.access.use_tokens({{"gone", kOther}, kept_token}));  // another order
    CHECK_THROWS_WITH(fixture.access.use_tokens({{"ben", "short"}}), ContainsSubstring("\"ben\""));
    CHECK_FALSE(kept.is_revoked());
    CHECK(fixture.access.use_tokens({kept_token, {"new", "abcdefghijklmnop"}}));
    CHECK_FALSE(kept.is_revoked());
    CHECK(gone.is_revoked());
    CHECK(fixture.verdict(request(kOurHost, bearer(kOther))) == "401");
    CHECK(fixture.verdict(request(kOurHost, bearer("abcdefghijklmnop"))) == "token:new");
    for (const AccessToken& change :
         {AccessToken{"renamed", kSecret, false, {"add"}}, AccessToken{"renamed", kSecret, true, {"add"}},
          AccessToken{"renamed", kSecret, true, {"add", "scale"}}, AccessToken{"renamed", kSecret, true, {}},
          AccessToken{"renamed", kOther, true, {}}}) {
        const auto before = fixture.principal(request(kOurHost, bearer(kSecret)));
        CHECK(fixture.access.use_tokens({change}));
        CHECK(before.is_revoked());
    }
}

TEST_CASE("where certificates are wanted, one must be shown and good, and a token too where there are some",
          "[server]") {
    auto options = remote();
    options.tls.authorities = "ca.pem";
    const auto showing = [&](bool is_good, const std::string& authorization = "") {
        auto head = request("anything", authorization);
        head.peer.certificate = net::PeerCertificate{"alice", is_good};
        return head;
    };
    const Fixture certificates(options);
    CHECK(certificates.verdict(showing(true)) == "cert:alice");
    CHECK_FALSE(certificates.principal(showing(true)).admin);
    CHECK(certificates.verdict(showing(false)) == "403");
    CHECK(certificates.verdict(request("anything")) == "401");

    const Fixture both(options, {{"ann", kSecret}});
    CHECK(both.verdict(showing(true)) == "401");
    CHECK(both.verdict(showing(true, bearer(kSecret))) == "token:ann");
    CHECK(both.verdict(showing(false, bearer(kSecret))) == "403");
    CHECK(both.verdict(request("anything", bearer(kSecret))) == "401");

    auto local = request("", "");
    local.peer = {};
    local.peer.unix_socket = true;
    local.peer.uid = ::getuid();
    CHECK(certificates.verdict(local) == kOwn);
}

TEST_CASE("a client is the same one on all its connections, and no other, with the limits of its kind", "[server]") {
    const Fixture fixture(ServerOptions(), {{"ann", kSecret}, {"ben", kOther}});
    const auto ann = fixture.principal(request(kOurHost, bearer(kSecret)));
    CHECK(ann.use != nullptr);
    CHECK(ann.use == fixture.principal(request(kOurHost, bearer(kSecret))).use);
    CHECK(ann.use != fixture.principal(request(kOurHost, bearer(kOther))).use);
    auto insecure = remote();
    insecure.insecure = true;
    const Fixture open(insecure);
    auto elsewhere = request("x");
    elsewhere.peer.ip = "10.0.0.2";
    CHECK(open.principal(request("x")).name == "anyone");
    CHECK(open.principal(request("x")).use == open.principal(request("x")).use);
    CHECK(open.principal(request("x")).use != open.principal(elsewhere).use);

    Clients clients({2, 100, 0});
    const auto bearer = clients.of("token:ann", false), own = clients.of("uid:1000", true);
    CHECK(bearer->bytes_in_flight->take(100));
    CHECK_FALSE(bearer->bytes_in_flight->take(101));
    CHECK(own->bytes_in_flight->take(1'000'000'000));
    for (const bool waits : {false, false, true})
        CHECK(bearer->requests.take().has_value() == waits);
    CHECK_FALSE(own->requests.take());
    clients.sweep();
    CHECK(clients.of("token:ann", false) == bearer);
}
