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

TEST_CASE("on loopback a request must mean this server, and come from its user or root", "[server]") {
    const Fixture fixture{ServerOptions()};
    for (const char* host : {"127.0.0.1:2537", "localhost:2537", "[::1]:2537", "LOCALHOST:2537"})
        CHECK(fixture.verdict(request(host)) == kOwn);
    for (const char* host : {"", "127.0.0.1", "127.0.0.1:80", "example.org:2537", "example.org"})
        CHECK(fixture.verdict(request(host)) == "403");
    auto foreign = request(kOurHost);
    foreign.peer.uid = ::getuid() + 1;
    CHECK(fixture.verdict(foreign) == "403");
    foreign.peer.uid.reset();
    CHECK(fixture.verdict(foreign) == "403");
    foreign.peer.uid = 0;
    CHECK(fixture.verdict(foreign) == "uid:0");
}

TEST_CASE("two Hosts are none", "[server]") {
    const Fixture fixture{ServerOptions()};
    auto head = request(kOurHost);
    head.headers.add("Host", kOurHost);
    CHECK(fixture.verdict(head) == "403");
}

TEST_CASE("pages of origins that were not named are rejected, whatever they show", "[server]") {
    ServerOptions options;
    options.allowed_origins = {"https://example.org"};
    const Fixture fixture(options, {{"ann", kSecret}});
    const auto from = [&](const std::string& origin) {
        auto head = request(kOurHost, bearer(kSecret));
        head.headers.add("Origin", origin);
        return head;
    };
    CHECK(fixture.verdict(from("https://example.org")) == "token:ann");
    for (const char* origin : {"http://example.org", "https://example.org.evil", "https://EXAMPLE.org", "null", "",
                               "https://example.org:444"}) {
        INFO(origin);
        CHECK(fixture.verdict(from(origin)) == "403");
    }
    auto twice = from("https://example.org");
    twice.headers.add("Origin", "https://example.org");
    CHECK(fixture.verdict(twice) == "403");
    CHECK_FALSE(fixture.access.check_place(from("https://example.org")));
    CHECK(fixture.access.check_place(from("https://evil.example")));
}

TEST_CASE("origins are named one by one", "[server]") {
    for (const char* origin : {"*", "null"}) {
        ServerOptions options;
        options.allowed_origins = {"https://example.org", origin};
        CHECK_THROWS_AS(Fixture(options), std::invalid_argument);
    }
}

TEST_CASE("with tokens nobody gets in without one", "[server]") {
    const Fixture fixture(ServerOptions(), {{"ann", kSecret}, {"ben", kOther, true}});
    CHECK(fixture.verdict(request(kOurHost, bearer(kSecret))) == "token:ann");
    CHECK(fixture.verdict(request(kOurHost, "bearer   " + kOther)) == "token:ben");
    CHECK_FALSE(fixture.principal(request(kOurHost, bearer(kSecret))).admin);
    CHECK(fixture.principal(request(kOurHost, bearer(kOther))).admin);
    for (const std::string& wrong :
         {std::string(), bearer(""), bearer(kSecret + "0"), bearer(kSecret.substr(1)), "Basic " + kSecret, kSecret}) {
        INFO(wrong);
        CHECK(fixture.verdict(request(kOurHost, wrong)) == "401");
    }
    auto twice = request(kOurHost, bearer(kSecret));
    twice.headers.add("Authorization", bearer(kSecret));
    CHECK(fixture.verdict(twice) == "401");
    CHECK(fixture.access.check_local(::getuid(), "").index() == 1);
    CHECK(fixture.access.check_local(::getuid() + 1, kSecret).index() == 0);
}

TEST_CASE("a token that can be guessed is rejected, and what was there goes on", "[server]") {
    CHECK_THROWS_WITH(Fixture(ServerOptions(), {{"ann", "short"}}), ContainsSubstring("\"ann\""));
    Fixture fixture(ServerOptions(), {{"ann", kSecret}});
    CHECK_THROWS_AS(fixture.access.use_tokens({{"ben", "short"}}), std::invalid_argument);
    CHECK(fixture.verdict(request(kOurHost, bearer(kSecret))) == "token:ann");
}

TEST_CASE("nobody listens beyond loopback for everybody by mistake", "[server]") {
    CHECK_THROWS_WITH(Fixture(remote()), ContainsSubstring("0.0.0.0"));
    CHECK_NOTHROW(Fixture(remote(), {{"ann", kSecret}}));
    auto insecure = remote();
    insecure.insecure = true;
    CHECK_NOTHROW(Fixture(insecure));
    auto with_certificates = remote();
    with_certificates.tls.authorities = "ca.pem";
    CHECK_NOTHROW(Fixture(with_certificates));
}

TEST_CASE("only addresses 127.a.b.c, ::1 and localhost are loopback", "[server]") {
    for (const char* host : {"127.0.0.1", "127.200.3.4", "::1", "[::1]", "localhost"})
        CHECK(is_loopback_host(host));
    for (const char* host : {"127.example.org", "127.0.0.1.example.org", "127.", "128.0.0.1", "0.0.0.0", "::", "host"})
        CHECK_FALSE(is_loopback_host(host));
    auto named = remote();
    named.host = "127.example.org";
    CHECK_THROWS_WITH(Fixture(named), ContainsSubstring("127.example.org"));
}

TEST_CASE("who kept its token keeps its grant; who lost it, or has another one now, is revoked", "[server]") {
    Fixture fixture(ServerOptions(), {{"kept", kSecret, false, {"add"}}, {"gone", kOther}});
    const auto kept = fixture.principal(request(kOurHost, bearer(kSecret)));
    const auto gone = fixture.principal(request(kOurHost, bearer(kOther)));
    CHECK_FALSE(fixture.access.use_tokens({{"gone", kOther}, {"kept", kSecret, false, {"add"}}}));  // another order
    CHECK_FALSE(kept.is_revoked());
    CHECK(fixture.access.use_tokens({{"kept", kSecret, false, {"add"}}, {"new", "abcdefghijklmnop"}}));
    CHECK_FALSE(kept.is_revoked());
    CHECK(gone.is_revoked());
    CHECK(fixture.verdict(request(kOurHost, bearer(kOther))) == "401");
    CHECK(fixture.verdict(request(kOurHost, bearer("abcdefghijklmnop"))) == "token:new");

    const std::vector<AccessToken> changes = {{"renamed", kSecret, false, {"add"}},
                                              {"renamed", kOther, false, {"add"}},
                                              {"renamed", kOther, true, {"add"}},
                                              {"renamed", kOther, true, {"add", "scale"}},
                                              {"renamed", kOther, true, {}}};
    for (const AccessToken& change : changes) {
        const auto tokens_before = fixture.access.check_local(0, kSecret);
        const Principal before = std::holds_alternative<Principal>(tokens_before)
                                     ? std::get<Principal>(tokens_before)
                                     : std::get<Principal>(fixture.access.check_local(0, kOther));
        CHECK(fixture.access.use_tokens({change}));
        CHECK(before.is_revoked());
    }
}

TEST_CASE("what a token allows goes with whom it let in", "[server]") {
    const Fixture fixture(ServerOptions(), {{"ann", kSecret, false, {"add"}}});
    const auto ann = fixture.principal(request(kOurHost, bearer(kSecret)));
    CHECK(ann.may_call("add"));
    CHECK_FALSE(ann.may_call("scale"));
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

TEST_CASE("a client is the same one on all its connections, and no other", "[server]") {
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
}

TEST_CASE("a client has the limits of its kind", "[server]") {
    Clients clients({2, 100, 0});
    const auto stranger = clients.of("token:ann", false);
    const auto own = clients.of("uid:1000", true);
    CHECK(stranger->bytes_in_flight->take(100));
    CHECK_FALSE(stranger->bytes_in_flight->take(101));
    CHECK(own->bytes_in_flight->take(1'000'000'000));
    CHECK_FALSE(stranger->requests.take());
    CHECK_FALSE(stranger->requests.take());
    CHECK(stranger->requests.take());
    CHECK_FALSE(own->requests.take());
    clients.sweep();
    CHECK(clients.of("token:ann", false) == stranger);
}

}  // namespace

TEST_CASE("When the kernel cannot be asked who is calling, the answer is to come again, with the reason", "[server]") {
    const Fixture fixture(ServerOptions{});
    net::RequestHead head = request("127.0.0.1:2537");
    head.peer.uid.reset();
    head.peer.uid_error = EMFILE;
    const auto checked = fixture.access.check(head);
    REQUIRE(std::holds_alternative<Rejection>(checked));
    CHECK(std::get<Rejection>(checked).status == 503);
    CHECK_THAT(std::get<Rejection>(checked).reason, ContainsSubstring("Too many open files"));
    head.peer.uid = ::getuid();
    head.peer.uid_error = 0;
    CHECK(std::holds_alternative<Principal>(fixture.access.check(head)));
}
