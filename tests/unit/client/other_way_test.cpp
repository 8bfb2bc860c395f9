#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

struct Asked {
    std::vector<std::string> parameters, reasons;
    bool answer = true;
};

/// Says what the test wants of parameters that the server could not open.
class OtherWay final : public client::TensorPorts {
public:
    explicit OtherWay(Asked& asked) : asked_(&asked) {}
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        throw std::logic_error("a tensor went out");
    }
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>,
                                                std::shared_ptr<const void>) const override {
        throw std::logic_error("a tensor came in");
    }
    bool goes_another_way(std::string_view parameter, const std::string& reason) const override {
        asked_->parameters.emplace_back(parameter);
        asked_->reasons.push_back(reason);
        return asked_->answer;
    }
    void make_tensor(std::span<const std::int64_t>, int, at::Tensor&) const override {
        throw std::logic_error("a tensor was made");
    }

private:
    Asked* const asked_;
};

const std::string kRefused =
    R"({"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params","data":{"parameter":"x.cuda_ipc.handle",)"
    R"("expected":"a handle that this process can open","got":"refused"}},"id":1})";
const std::string kDone = R"({"jsonrpc":"2.0","result":5,"id":2})";

}  // namespace

TEST_CASE("A call whose argument could not be opened is sent once more, if that goes another way", "[client]") {
    Asked asked;
    ScriptedClient client({says(200, kRefused), says(200, kDone)}, options_for_tests(),
                          std::make_unique<OtherWay>(asked));
    CHECK(client.call<int>("f") == 5);
    CHECK(client.tries() == 2);
    REQUIRE_FALSE(asked.parameters.empty());
    CHECK(asked.parameters.front() == "x.cuda_ipc.handle");
    CHECK(asked.reasons.front() == "refused");
}

TEST_CASE("A call whose parameter is wrong is sent once", "[client]") {
    Asked asked;
    asked.answer = false;
    ScriptedClient client({says(200, kRefused)}, options_for_tests(), std::make_unique<OtherWay>(asked));
    CHECK_THROWS_AS(client.call<int>("f"), InvalidParams);
    CHECK(client.tries() == 1);
}

TEST_CASE("A call that is refused twice is not sent a third time", "[client]") {
    Asked asked;
    ScriptedClient client({says(200, kRefused), says(200, R"({"jsonrpc":"2.0","error":{"code":-32602,)"
                                                          R"("message":"Invalid params"},"id":2})")},
                          options_for_tests(), std::make_unique<OtherWay>(asked));
    CHECK_THROWS_AS(client.call<int>("f"), InvalidParams);
    CHECK(client.tries() == 2);
}
