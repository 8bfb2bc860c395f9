#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "scripted.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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
class LeasingPorts final : public client::TensorPorts {
public:
    explicit LeasingPorts(Record& record) : record_(&record) {}
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        throw std::logic_error("a tensor went out");
    }
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
    TensorRef make_tensor(std::span<const std::int64_t>, DType) const override {
        throw std::logic_error("a tensor was made");
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

/// The name of a tensor that is read, once or twice.
struct NameOf final : detail::ResultSlot {
    void read(const ValueReader& value) override {
        value.require(Kind::tensor, "tensor");
        name = name_in(value.tensor());
        CHECK(name_in(value.tensor()) == name);
    }
    std::string name;
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
