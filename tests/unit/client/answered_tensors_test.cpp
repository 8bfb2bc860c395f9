// The tensors of an answer: read without parsing the JSON, fetched another way, or not read.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "scripted.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

/// No memory of a device can be opened; tensors that come in another way are "copy".
class NothingOpens final : public codec::TensorPort {
public:
    codec::TensorPointer import(const codec::Json& descriptor) override {
        if (descriptor.contains("cuda_ipc")) throw client::NotOpened{descriptor["lease"], "the driver rejects"};
        return std::make_shared<FakeTensor>("copy");
    }
    codec::TensorPointer wrap(const TensorRef&) override { throw std::logic_error("a tensor was wrapped"); }
    void describe(const codec::TensorPointer&, json_rpc::LongText&) override {
        throw std::logic_error("a tensor went out");
    }
};

class Ports final : public NoPorts {
public:
    explicit Ports(std::vector<std::string>& given_up) : given_up_(&given_up) {}
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>, std::shared_ptr<const void>,
                                                const std::string&) const override {
        return std::make_unique<NothingOpens>();
    }
    void abandon(const std::vector<std::string>& leases) const override {
        given_up_->insert(given_up_->end(), leases.begin(), leases.end());
    }

private:
    std::vector<std::string>* const given_up_;
};

/// A result in memory of a device.
net::ClientResponse by_device(const net::ClientRequest& request) {
    auto response = gives({{"$tensor", {{"lease", "l-1"}, {"cuda_ipc", Json::object()}}}})(request);
    response.headers.add("Shared-Tensor-Transport", "cuda_ipc;tensors=1;copied=0");
    return response;
}

/// The name of a tensor that is read twice.
struct NameOf final : detail::ResultSlot {
    void read(const ValueReader& value) override {
        value.require(Kind::tensor, "tensor");
        name = name_in(value.tensor());
        CHECK(name_in(value.tensor()) == name);
    }
    std::string name;
};

struct Called {
    explicit Called(std::vector<Reply> script) : sender(new ScriptedRequests(std::move(script))) {
        core = std::make_shared<Core>(
            options_for_tests(),
            client::Dependencies{
                std::unique_ptr<client::RequestSender>(sender), std::make_unique<Ports>(given_up), &real_clock(), {}});
    }
    std::string name(const CallOptions& options = {}) const {
        NameOf slot;
        core->call("f", detail::ArgumentsOf<>(), slot, options);
        return slot.name;
    }

    std::vector<std::string> given_up;
    ScriptedRequests* sender;  // owned by the core
    std::shared_ptr<Core> core;
};

const Reply kCopy = gives({{"$tensor", {{"body", {{"offset", 0}, {"size", 4}}}}}});

}  // namespace

TEST_CASE("A result that cannot be opened is asked for by its lease, and the lease given up", "[client]") {
    const Called called({by_device, kCopy});
    CHECK(called.name() == "copy");
    const auto requests = called.sender->requests();
    REQUIRE(requests.size() == 2);
    CHECK(json_of(requests[1])["method"] == "lease.get");
    CHECK(json_of(requests[1])["params"]["lease"] == "l-1");
    CHECK(requests[1].headers.find("Shared-Tensor-Require") == "shm, body");
    CHECK(called.given_up == std::vector<std::string>{"l-1"});
}

TEST_CASE("A server that sends what cannot be opened again and again is asked once", "[client]") {
    const Called called({by_device});
    CHECK_THROWS_AS(called.name(), ResultMismatch);
    CHECK(called.sender->requests().size() == 2);
}

TEST_CASE("A result that cannot be had in another way does not look as if nothing had run", "[client]") {
    CHECK_THROWS_AS(Called({by_device, rejects(-32005)}).name(), TensorExpired);
    for (const Reply& reply : {is_not_there(), rejects(-32009), rejects(-32001)}) {
        try {
            (void)Called({by_device, reply}).name();
            FAIL("a tensor came");
        } catch (const TransportFailure& failure) {
            CHECK(failure.may_have_run());
        }
    }
}

TEST_CASE("What a call requires holds for the second way too", "[client]") {
    const Called one({by_device, kCopy}), two({by_device, kCopy});
    CallOptions options;
    options.require = "cuda_ipc";
    CHECK_THROWS_AS(one.name(options), TransportNotPossible);
    CHECK(one.sender->requests().size() == 1);
    options.require = "cuda_ipc, body";
    CHECK(two.name(options) == "copy");
    CHECK(two.sender->requests()[1].headers.find("Shared-Tensor-Require") == "body");
}

namespace {

/// What became of leased tensors.
struct Record {
    std::vector<std::string> seen, imported, given_up;
};

codec::TensorPointer import_leased(Record& record, const std::string& lease) {
    if (lease == "expired") throw TensorExpired(-32005, "Unknown or expired", "", "gone");
    if (lease == "wrong") throw InvalidValue("shm.offset", "integer up to 1", "number 2");
    record.imported.push_back(lease);
    return std::make_shared<FakeTensor>(lease);
}

/// Takes {"lease":"..."} for the descriptor of a leased tensor.
class LeasingPorts final : public NoPorts {
public:
    explicit LeasingPorts(Record& record) : record_(&record) {}
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>, std::shared_ptr<const void>,
                                                const std::string&) const override {
        return std::make_unique<FakePort>();
    }
    std::optional<client::LeasedTensor> leased(std::string_view descriptor, const std::string&) const override {
        record_->seen.emplace_back(descriptor);
        constexpr std::string_view kStart = R"({"lease":")", kEnd = R"("})";
        if (!descriptor.starts_with(kStart) || !descriptor.ends_with(kEnd)) return std::nullopt;
        descriptor.remove_prefix(kStart.size());
        descriptor.remove_suffix(kEnd.size());
        std::string lease(descriptor);
        return client::LeasedTensor{lease, [record = record_, lease] { return import_leased(*record, lease); }};
    }
    void abandon(const std::vector<std::string>& leases) const override {
        record_->given_up.insert(record_->given_up.end(), leases.begin(), leases.end());
    }

private:
    Record* const record_;
};

struct Answered {
    explicit Answered(std::string text)
        : client({says(200, std::move(text))}, options_for_tests(), std::make_unique<LeasingPorts>(record)) {}

    Record record;
    ScriptedClient client;
};

std::string whole_answer(const std::string& result) { return R"({"jsonrpc":"2.0","result":)" + result + R"(,"id":1})"; }

std::string name_in(Answered& answered) {
    NameOf slot;
    answered.client.core.call("f", detail::ArgumentsOf<>(), slot, {});
    return slot.name;
}

const std::string kLeased = whole_answer(R"({"$tensor":{"lease":"l-1"}})");

}  // namespace

TEST_CASE("A leased tensor that is the whole result is read without its JSON, and once", "[client]") {
    Answered answered(kLeased);
    CHECK(name_in(answered) == "l-1");
    CHECK(answered.record.seen == std::vector<std::string>{R"({"lease":"l-1"})"});
    CHECK(answered.record.imported == std::vector<std::string>{"l-1"});
    CHECK(answered.record.given_up.empty());
}

TEST_CASE("A leased tensor that nobody reads is given up", "[client]") {
    Answered answered(kLeased);
    SECTION("for it is of another type") {
        try {
            answered.client.call<int>("f");
            FAIL("a tensor was taken for a number");
        } catch (const ResultMismatch& error) {
            CHECK(std::string(error.what()).find("tensor") != std::string::npos);
        }
    }
    SECTION("for nobody asks") { answered.client.call<void>("f"); }
    CHECK(answered.record.imported.empty());
    CHECK(answered.record.given_up == std::vector<std::string>{"l-1"});
}

TEST_CASE("Why a leased tensor cannot be read is said as for any other", "[client]") {
    Answered expired(whole_answer(R"({"$tensor":{"lease":"expired"}})")),
        wrong(whole_answer(R"({"$tensor":{"lease":"wrong"}})"));
    CHECK_THROWS_AS(name_in(expired), TensorExpired);
    CHECK_THROWS_AS(name_in(wrong), ResultMismatch);
    CHECK(expired.client.tries() == 1);
    CHECK(wrong.client.tries() == 1);
}

TEST_CASE("What is no leased tensor alone is read as JSON", "[client]") {
    SECTION("a tensor of another kind") {
        Answered answered(whole_answer(R"({"$tensor":{"name":"x"}})"));
        CHECK(name_in(answered) == "x");
        CHECK(answered.record.seen == std::vector<std::string>{R"({"name":"x"})"});
    }
    SECTION("one written by another server") {
        Answered answered(R"({"id":1, "jsonrpc":"2.0", "result":{"$tensor":{"name":"x"}}})");
        CHECK(name_in(answered) == "x");
        CHECK(answered.record.seen.empty());
    }
    SECTION("an answer to another request") {
        Answered answered(R"({"jsonrpc":"2.0","result":{"$tensor":{"lease":"l-1"}},"id":7})");
        CHECK_THROWS_AS(name_in(answered), TransportFailure);
        CHECK(answered.record.seen.empty());
    }
    SECTION("text that is no JSON") {
        Answered answered(whole_answer(R"({"$tensor":{"lease":})"));
        CHECK_THROWS_AS(name_in(answered), TransportFailure);
    }
}
