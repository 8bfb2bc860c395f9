#include <catch2/catch_test_macros.hpp>

#include "server/auth/principal.hpp"

using namespace shared_tensor::server;

namespace {

TEST_CASE("a grant without methods allows all", "[server]") {
    const Permissions grant({});
    for (const char* method : {"add", "tensor.get", "anything at all", ""})
        CHECK(grant.allows(method));
}

TEST_CASE("a grant allows the methods that it names, and by prefix", "[server]") {
    const Permissions grant({"add", "image.*", "model"});
    for (const char* method : {"add", "image.resize", "image.", "model"}) {
        INFO(method);
        CHECK(grant.allows(method));
    }
    for (const char* method : {"adder", "ad", "Add", "add ", "image", "images.resize", "my.image.resize", "model.x", "",
                               "*", "tensor.get"}) {
        INFO(method);
        CHECK_FALSE(grant.allows(method));
    }
}

TEST_CASE("a star alone allows all", "[server]") {
    const Permissions grant({"*"});
    CHECK(grant.allows("add"));
    CHECK(grant.allows("tensor.put"));
}

TEST_CASE("what concerns only calls of one's own goes with any grant", "[server]") {
    const Permissions grant({"add"});
    for (const char* method :
         {"task.status", "lease.renew", "session.open", "object.release", "server.info", "rpc.discover"}) {
        INFO(method);
        CHECK(grant.allows(method));
    }
    for (const char* method : {"tasks.status", "task", "rpc", "tensor.delete", "my.task.status"}) {
        INFO(method);
        CHECK_FALSE(grant.allows(method));
    }
}

TEST_CASE("a grant is revoked for all who share it", "[server]") {
    const auto grant = std::make_shared<Permissions>(std::vector<std::string>{"add"});
    const Principal one{"token:a", false, grant}, other{"token:a", false, grant}, free{"uid:0", true};
    CHECK_FALSE(one.is_revoked());
    grant->revoke();
    CHECK(one.is_revoked());
    CHECK(other.is_revoked());
    CHECK_FALSE(free.is_revoked());
    CHECK(one.may_call("add"));  // that is another question
}

TEST_CASE("who has no grant may call everything", "[server]") {
    const Principal user{"uid:1000", false};
    CHECK(user.may_call("add"));
    const Principal bound{"token:a", true, std::make_shared<Permissions>(std::vector<std::string>{"add"})};
    CHECK(bound.may_call("add"));
    CHECK_FALSE(bound.may_call("scale"));
}

TEST_CASE("the reason against a call names it", "[server]") {
    CHECK(reason_against("scale").find("scale") != std::string::npos);
}

}  // namespace
