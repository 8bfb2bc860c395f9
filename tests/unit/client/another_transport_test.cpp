#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/value.hpp>

#include "client/async/async_core.hpp"
#include "protocol/codec/frame.hpp"
#include "scripted.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// An argument that is a tensor.
struct Weights {};

/// What was asked about parameters that the server could not open.
struct Asked {
    std::vector<std::string> parameters, reasons;
    bool answer = true;
    /// Of the memory that is shared, and of what is shared when the server does not know that any more.
    std::string session, next_session;
};

/// {"name": "w", "copied": whether the server has rejected one}.
class SentTensors final : public client::OutgoingTensors {
public:
    SentTensors(bool copied, std::string session) : copied_(copied), session_(std::move(session)) {}
    codec::TensorPointer import(const codec::Json&) override { throw std::logic_error("a tensor came in"); }
    codec::TensorPointer wrap(const TensorRef& tensor) override {
        return std::make_shared<FakeTensor>(name_in(tensor));
    }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        out += codec::Json{{"name", name_in(tensor->tensor())}, {"copied", copied_}}.dump();
    }
    const std::vector<BodyPart>& parts() const override { return parts_; }
    std::string memory() const override { return session_; }

private:
    const bool copied_;
    const std::string session_;
    const std::vector<BodyPart> parts_{};
};

class AnotherTransport final : public NoPorts {
public:
    explicit AnotherTransport(Asked& asked) : asked_(&asked) {}
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        return std::make_unique<SentTensors>(asked_->answer && !asked_->parameters.empty(), asked_->session);
    }
    std::string session() const override { return asked_->session; }
    void session_rejected(const std::string& session) const override {
        CHECK(session == asked_->session);
        asked_->session = asked_->next_session;
    }
    bool uses_another_transport(std::string_view parameter, const std::string& reason) const override {
        asked_->parameters.emplace_back(parameter);
        asked_->reasons.push_back(reason);
        return asked_->answer;
    }

private:
    Asked* const asked_;
};

/// The JSON of a request in frame form.
Json sent_json(const net::ClientRequest& request) {
    const std::string body = body_of(request);
    const auto frame = codec::split_frame(std::as_bytes(std::span(body)));
    return frame ? Json::parse(frame->json) : Json();
}

const Json kCannotOpen{
    {"parameter", "x.cuda_ipc.handle"}, {"expected", "a handle that this process can open"}, {"got", "rejected"}};

Reply rejects_to_open() {
    return [](const net::ClientRequest& request) {
        return answer(200, error_for(sent_json(request), -32602, kCannotOpen).dump());
    };
}
Reply says_five() {
    return [](const net::ClientRequest& request) { return answer(200, result_for(sent_json(request), 5).dump()); };
}

}  // namespace

namespace shared_tensor {

template <>
struct Codec<Weights> {
    static void write(ValueWriter writer, const Weights&) { writer.tensor(tensor_named("w")); }
    static Weights read(const ValueReader&) { return {}; }
    static void schema(ValueWriter writer) { writer.object(); }
};

}  // namespace shared_tensor

TEST_CASE("A call whose argument could not be opened is sent once more, the other way", "[client]") {
    Asked asked;
    ScriptedClient client({rejects_to_open(), says_five()}, options_for_tests(),
                          std::make_unique<AnotherTransport>(asked));
    CHECK(client.call<int>("f", named("x", Weights())) == 5);
    REQUIRE(client.tries() == 2);
    CHECK(asked.parameters == std::vector<std::string>{"x.cuda_ipc.handle"});
    CHECK(asked.reasons == std::vector<std::string>{"rejected"});
    Json first = sent_json(client.sender->requests()[0]), second = sent_json(client.sender->requests()[1]);
    CHECK(first["params"]["x"]["$tensor"] == Json{{"name", "w"}, {"copied", false}});
    CHECK(second["params"]["x"]["$tensor"] == Json{{"name", "w"}, {"copied", true}});
    second["params"] = first["params"];
    CHECK(first == second);  // nothing else differs
    CHECK(client.core.statistics().requests == 1);
    CHECK(client.core.statistics().failures == 0);
}

TEST_CASE("A call whose parameter is wrong is sent once", "[client]") {
    Asked asked;
    asked.answer = false;
    ScriptedClient client({rejects_to_open()}, options_for_tests(), std::make_unique<AnotherTransport>(asked));
    CHECK_THROWS_AS(client.call<int>("f", named("x", Weights())), InvalidParams);
    CHECK(client.tries() == 1);
}

TEST_CASE("A call that is cancelled in its second round tells that it may have run in the first", "[client]") {
    Asked asked;
    ScriptedClient client({breaks(), rejects_to_open(), fails(net::TransportError::Kind::cancelled, false)},
                          options_for_tests(), std::make_unique<AnotherTransport>(asked));
    try {
        client.call_with<int>(CallOptions{.idempotent = true}, "f", named("x", Weights()));
        FAIL("it was not cancelled");
    } catch (const Cancelled& error) {
        CHECK(error.may_have_run());
    }
    CHECK(client.tries() == 3);
}

TEST_CASE("A call without tensors is not sent again", "[client]") {
    Asked asked;
    ScriptedClient client({rejects(-32602, kCannotOpen)}, options_for_tests(),
                          std::make_unique<AnotherTransport>(asked));
    CHECK_THROWS_AS(client.call<int>("f"), InvalidParams);
    CHECK(client.tries() == 1);
}

TEST_CASE("A call that is rejected twice is not sent a third time", "[client]") {
    Asked asked;
    ScriptedClient client({rejects_to_open()}, options_for_tests(), std::make_unique<AnotherTransport>(asked));
    CHECK_THROWS_AS(client.call<int>("f", named("x", Weights())), InvalidParams);
    CHECK(client.tries() == 2);
}

TEST_CASE("A call whose argument lies in memory that the server has forgotten is sent once more without", "[client]") {
    Asked asked;
    asked.session = "first";
    const auto forgotten = [](const net::ClientRequest& request) {
        return answer(200, error_for(sent_json(request), -32005, {{"kind", "session"}}).dump());
    };
    const auto sessions = [](const ScriptedClient& client) {
        std::vector<std::string> named;
        for (const auto& request : client.sender->requests())
            named.emplace_back(request.headers.find("Shared-Tensor-Session").value_or("none"));
        return named;
    };
    SECTION("and goes as bytes") {
        ScriptedClient client({forgotten, says_five()}, options_for_tests(), std::make_unique<AnotherTransport>(asked));
        CHECK(client.call<int>("f", named("x", Weights())) == 5);
        CHECK(sessions(client) == std::vector<std::string>{"first", "none"});
        CHECK(client.core.statistics().failures == 0);
    }
    SECTION("also where it was found while the arguments were read") {
        const Json gone{
            {"parameter", "x.shm"}, {"expected", "one of the transports"}, {"got", "shm, but the channel is gone"}};
        const auto meanwhile = [&](const net::ClientRequest& request) {
            asked.session = "second";
            return answer(200, error_for(sent_json(request), -32602, gone).dump());
        };
        asked.answer = false;
        ScriptedClient client({meanwhile, says_five()}, options_for_tests(), std::make_unique<AnotherTransport>(asked));
        CHECK(client.call<int>("f", named("x", Weights())) == 5);
        CHECK(sessions(client) == std::vector<std::string>{"first", "second"});
    }
    SECTION("but not a third time") {
        asked.next_session = "second";
        ScriptedClient client({forgotten}, options_for_tests(), std::make_unique<AnotherTransport>(asked));
        CHECK_THROWS_AS(client.call<int>("f", named("x", Weights())), UnknownOrExpired);
        CHECK(sessions(client) == std::vector<std::string>{"first", "second"});
    }
}

TEST_CASE("An asynchronous call whose argument could not be opened is sent once more, when its caller has gone on",
          "[client]") {
    Asked asked;
    auto* const sender = new ScriptedRequests({rejects_to_open(), says_five()});
    AsyncOptions options;
    options.client = options_for_tests();
    const auto core = std::make_shared<client::AsyncCore>(
        options, client::Dependencies{std::unique_ptr<client::RequestSender>(sender),
                                      std::make_unique<AnotherTransport>(asked),
                                      &real_clock(),
                                      {}});
    auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
    auto result = slot->future();
    {
        const Weights gone;
        core->start("f", detail::ArgumentsOf<Weights>(gone), std::move(slot), {});
    }
    CHECK(result.get() == 5);
    CHECK(sender->requests().size() == 2);
    CHECK(sent_json(sender->requests().back())["params"][0]["$tensor"]["copied"] == true);
    core->stop();
}
