#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "scripted.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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

class Ports final : public client::TensorPorts {
public:
    explicit Ports(std::vector<std::string>& given_up) : given_up_(&given_up) {}
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        throw std::logic_error("a tensor went out");
    }
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>, std::shared_ptr<const void>,
                                                const std::string&) const override {
        return std::make_unique<NothingOpens>();
    }
    void abandon(const std::vector<std::string>& leases) const override {
        given_up_->insert(given_up_->end(), leases.begin(), leases.end());
    }
    TensorRef make_tensor(std::span<const std::int64_t>, DType) const override {
        throw std::logic_error("a tensor was made");
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

struct NameOf final : detail::ResultSlot {
    void read(const ValueReader& value) override {
        value.require(Kind::tensor, "tensor");
        name = name_in(value.tensor());
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
