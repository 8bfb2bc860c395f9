// Tensors of arguments that the server cannot open, or whose memory it has forgotten: the call is sent once more.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/value.hpp>

#include "protocol/codec/frame.hpp"
#include "scripted.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// An argument that is a tensor.
struct Weights {};

using Texts = std::vector<std::string>;

struct Asked {
    /// Whether there is another way for what the server could not open.
    bool answer = true;
    /// Of the memory that is shared, and of what is shared when the server does not know that any more.
    std::string session, next_session;
};

class SentTensors final : public client::OutgoingTensors {
public:
    explicit SentTensors(std::string session) : session_(std::move(session)) {}
    codec::TensorPointer import(const codec::Json&) override { throw std::logic_error("a tensor came in"); }
    codec::TensorPointer wrap(const TensorRef& tensor) override {
        return std::make_shared<FakeTensor>(name_in(tensor));
    }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        out += codec::Json{{"name", name_in(tensor->tensor())}}.dump();
    }
    const std::vector<BodyPart>& parts() const override { return parts_; }
    std::string memory() const override { return session_; }

private:
    const std::string session_;
    const std::vector<BodyPart> parts_{};
};

class AnotherTransport final : public NoPorts {
public:
    explicit AnotherTransport(Asked& asked) : asked_(&asked) {}
    std::unique_ptr<client::OutgoingTensors> outgoing(std::string_view) const override {
        return std::make_unique<SentTensors>(asked_->session);
    }
    std::string session() const override { return asked_->session; }
    void session_rejected(const std::string& session) const override {
        CHECK(session == asked_->session);
        asked_->session = asked_->next_session;
    }
    bool uses_another_transport(std::string_view, const std::string&) const override { return asked_->answer; }

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

Reply rejects_frame(int code, const Json& data) {
    return [=](const net::ClientRequest& request) {
        return answer(200, error_for(sent_json(request), code, data).dump());
    };
}
const Reply kRejectsToOpen = rejects_frame(-32602, kCannotOpen);
const Reply kForgotten = rejects_frame(-32005, {{"kind", "session"}});
const Reply kSaysFive = [](const net::ClientRequest& request) {
    return answer(200, result_for(sent_json(request), 5).dump());
};

/// A client of this script whose one argument is a tensor.
struct Tested {
    explicit Tested(std::vector<Reply> script)
        : client(std::move(script), options_for_tests(), std::make_unique<AnotherTransport>(asked)) {}
    int call(const CallOptions& options = {}) { return client.call_with<int>(options, "f", named("x", Weights())); }
    Texts sessions() const {
        Texts named;
        for (const auto& request : client.sender->requests())
            named.emplace_back(request.headers.find("Shared-Tensor-Session").value_or("none"));
        return named;
    }
    Asked asked;
    ScriptedClient client;
};

}  // namespace

namespace shared_tensor {

template <>
struct Codec<Weights> {
    static void write(ValueWriter writer, const Weights&) { writer.tensor(tensor_named("w")); }
    static Weights read(const ValueReader&) { return {}; }
    static void schema(ValueWriter writer) { writer.object(); }
};

}  // namespace shared_tensor

TEST_CASE("A call is sent once if its parameter is wrong or it has no tensors, and twice if it is rejected again",
          "[client]") {
    Tested wrong({kRejectsToOpen}), plain({rejects(-32602, kCannotOpen)}), again({kRejectsToOpen});
    wrong.asked.answer = false;
    CHECK_THROWS_AS(wrong.call(), InvalidParams);
    CHECK_THROWS_AS(plain.client.call<int>("f"), InvalidParams);
    CHECK_THROWS_AS(again.call(), InvalidParams);
    CHECK(wrong.client.tries() == 1);
    CHECK(plain.client.tries() == 1);
    CHECK(again.client.tries() == 2);
}

TEST_CASE("A call that is cancelled in its second round tells that it may have run in the first", "[client]") {
    Tested tested({breaks(), kRejectsToOpen, fails(net::TransportError::Kind::cancelled, false)});
    CHECK(thrown_by<Cancelled>([&] { tested.call({.idempotent = true}); }).may_have_run());
    CHECK(tested.client.tries() == 3);
}

TEST_CASE("A call whose argument lies in memory that the server has forgotten is sent once more without", "[client]") {
    SECTION("and goes as bytes") {
        Tested tested({kForgotten, kSaysFive});
        tested.asked.session = "first";
        CHECK(tested.call() == 5);
        CHECK(tested.sessions() == Texts{"first", "none"});
        CHECK(tested.client.core.statistics().failures == 0);
    }
    SECTION("also where it was found while the arguments were read") {
        Asked* asked = nullptr;
        const auto meanwhile = [&](const net::ClientRequest& request) {
            asked->session = "second";
            const Json gone{
                {"parameter", "x.shm"}, {"expected", "one of the transports"}, {"got", "shm, but the channel is gone"}};
            return rejects_frame(-32602, gone)(request);
        };
        Tested tested({meanwhile, kSaysFive});
        asked = &tested.asked;
        asked->session = "first";
        asked->answer = false;
        CHECK(tested.call() == 5);
        CHECK(tested.sessions() == Texts{"first", "second"});
    }
    SECTION("but not a third time") {
        Tested tested({kForgotten});
        tested.asked.session = "first";
        tested.asked.next_session = "second";
        CHECK_THROWS_AS(tested.call(), UnknownOrExpired);
        CHECK(tested.sessions() == Texts{"first", "second"});
    }
}
