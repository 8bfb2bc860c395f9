#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "client/call/batch_state.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// Answers in reverse order: "fails" with -32000, everything else with its own method name.
net::ClientResponse answer_batch(const net::ClientRequest& request) {
    Json answers = Json::array();
    for (const auto& item : json_of(request)) {
        if (!item.contains("id")) continue;
        const bool fails = item.at("method") == "fails";
        answers.insert(answers.begin(), fails ? error_for(item, -32000, nullptr) : result_for(item, item.at("method")));
    }
    return answers.empty() ? answer(204, "") : answer(200, answers.dump());
}

/// Memory is shared in the session "s-shared", as long as the server knows that.
class SharingPorts final : public NoPorts {
public:
    std::string session() const override { return lost ? "" : "s-shared"; }
    void session_rejected(const std::string&) const override { lost = true; }
    mutable bool lost = false;
};

struct TestBatch {
    explicit TestBatch(std::vector<Reply> script, CallOptions options = {},
                       std::unique_ptr<client::TensorPorts> ports = std::make_unique<NoPorts>())
        : client(std::move(script), options_for_tests(), std::move(ports)),
          state(std::shared_ptr<Core>(&client.core, [](Core*) {}), std::move(options)) {}

    std::size_t add(std::string_view method, const CallOptions& options = {}) {
        return state.append(method, detail::ArgumentsOf<>(), options);
    }
    std::string result(std::size_t index) const {
        detail::ResultOf<std::string> slot;
        state.result(index, slot);
        return slot.take();
    }

    ScriptedClient client;
    client::BatchState state;
};

}  // namespace

TEST_CASE("A batch is one request, and each item finds its own answer, again and again", "[client]") {
    TestBatch batch({answer_batch});
    const auto a = batch.add("a");
    const auto bad = batch.add("fails");
    const auto b = batch.add("b");
    batch.state.send();
    CHECK(batch.client.tries() == 1);
    CHECK(batch.client.sent().size() == 3);
    CHECK(batch.result(a) == "a");
    CHECK_THROWS_AS(batch.result(bad), FunctionFailed);
    CHECK(batch.result(a) == "a");
    CHECK(batch.result(b) == "b");
}

TEST_CASE("An item whose own session has ended fails alone, and nothing is sent again", "[client]") {
    const auto one_lost = [](const net::ClientRequest& request) {
        const Json items = json_of(request);
        return answer(200,
                      Json{result_for(items[0], "ran"), error_for(items[1], -32005, {{"kind", "session"}})}.dump());
    };
    TestBatch batch({one_lost}, {}, std::make_unique<SharingPorts>());
    const auto runs = batch.add("f");
    const auto lost = batch.add("g", CallOptions{.session = "s-of-old"});
    batch.state.send();
    CHECK(batch.client.tries() == 1);
    CHECK(batch.result(runs) == "ran");
    CHECK_THROWS_AS(batch.result(lost), UnknownOrExpired);
    CHECK_FALSE(batch.client.core.ports().session().empty());
}

TEST_CASE("A batch whose session the server does not know is sent again without", "[client]") {
    const auto all_lost = [](const net::ClientRequest& request) {
        const Json items = json_of(request);
        const Json kind{{"kind", "session"}};
        return answer(200, Json{error_for(items[0], -32005, kind), error_for(items[1], -32005, kind)}.dump());
    };
    TestBatch batch({all_lost, answer_batch}, {}, std::make_unique<SharingPorts>());
    const auto a = batch.add("a");
    batch.add("b");
    batch.state.send();
    CHECK(batch.client.tries() == 2);
    CHECK(batch.result(a) == "a");
    CHECK(batch.client.core.ports().session().empty());
}

TEST_CASE("A call about another session does not end the own one", "[client]") {
    const auto rejects = [](const net::ClientRequest& request) {
        return answer(200, error_for(json_of(request), -32005, {{"kind", "session"}}).dump());
    };
    ScriptedClient client({rejects}, options_for_tests(), std::make_unique<SharingPorts>());
    CHECK_THROWS_AS(client.call("session.close", named("session", "s-other")), UnknownOrExpired);
    CHECK(client.tries() == 1);
    CHECK_FALSE(client.core.ports().session().empty());
}

TEST_CASE("A batch of notifications needs no answer", "[client]") {
    TestBatch batch({answer_batch});
    batch.state.append_notification("log", detail::ArgumentsOf<>());
    batch.state.send();
    CHECK(batch.client.sent().size() == 1);
}

TEST_CASE("An item that the server left out is a failure of that item", "[client]") {
    TestBatch batch({says(200, R"([{"jsonrpc":"2.0","id":12345678,"result":1}])")});
    const auto a = batch.add("a");
    batch.state.send();
    CHECK_THROWS_AS(batch.result(a), TransportFailure);
}

TEST_CASE("An error for the whole batch comes from send, and the items say so", "[client]") {
    TestBatch batch({says(200, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}})")});
    const auto a = batch.add("a");
    CHECK_THROWS_AS(batch.state.send(), RpcError);
    CHECK_THROWS_AS(batch.result(a), std::logic_error);
}

TEST_CASE("Results before send and a second send are mistakes of the program", "[client]") {
    TestBatch batch({answer_batch});
    const auto a = batch.add("a");
    CHECK_THROWS_AS(batch.result(a), std::logic_error);
    batch.state.send();
    CHECK_THROWS_AS(batch.state.send(), std::logic_error);
    CHECK_THROWS_AS(batch.add("late"), std::logic_error);
}

TEST_CASE("The receipt of a batch describes its one request, also if the batch fails or is empty", "[client]") {
    TestBatch batch({is_not_there(), answer_batch}), failed({breaks()}), empty({answer_batch});
    Receipt receipt;
    batch.add("a");
    batch.state.send(&receipt);
    CHECK(receipt.tries == 2);
    CHECK(receipt.request_id == batch.client.sent(1).at(0).at("id").dump());
    failed.add("a");
    CHECK_THROWS_AS(failed.state.send(&receipt), TransportFailure);
    CHECK(receipt.tries == 1);
    empty.state.send(&receipt);
    CHECK(receipt.tries == 0);
}

TEST_CASE("An empty batch sends nothing", "[client]") {
    TestBatch batch({answer_batch});
    batch.state.send();
    CHECK(batch.client.tries() == 0);
}

TEST_CASE("Options of an item travel in its meta member", "[client]") {
    TestBatch batch({answer_batch});
    CallOptions options;
    options.timeout = std::chrono::milliseconds(50);
    options.idempotency_key = "k";
    options.session = "s-1";
    batch.add("a", options);
    batch.add("b");
    batch.state.send();
    CHECK(batch.client.sent().at(0).at("meta") ==
          Json{{"timeout_ms", 50}, {"idempotency_key", "k"}, {"session", "s-1"}});
    CHECK_FALSE(batch.client.sent().at(1).contains("meta"));
}

TEST_CASE("The timeout of an item is limited to what servers accept", "[client]") {
    using std::chrono::milliseconds;
    TestBatch batch({answer_batch});
    for (const milliseconds timeout : {milliseconds(-5), milliseconds(0), milliseconds::max()})
        batch.add("a", within(timeout));
    batch.state.send();
    const Json sent = batch.client.sent();
    CHECK(sent.at(0).at("meta").at("timeout_ms") == 1);
    CHECK(sent.at(1).at("meta").at("timeout_ms") == 1);
    CHECK(sent.at(2).at("meta").at("timeout_ms") == 86'400'000);
}

TEST_CASE("The client's idempotency key does not go with a batch", "[client]") {
    CallOptions options;
    options.idempotency_key = "k";
    TestBatch batch({breaks(), answer_batch}, options);
    batch.add("a");
    CHECK_THROWS_AS(batch.state.send(), TransportFailure);
    CHECK_FALSE(batch.client.sender->requests().at(0).headers.find("Idempotency-Key").has_value());
}

TEST_CASE("A batch that may run twice is repeated as a whole", "[client]") {
    CallOptions options;
    options.idempotent = true;
    TestBatch batch({breaks(), answer_batch}, options);
    const auto a = batch.add("a");
    batch.state.send();
    CHECK(batch.result(a) == "a");
}
