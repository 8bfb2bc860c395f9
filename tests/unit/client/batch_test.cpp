#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "client/call/batch_state.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// Answers in reverse order: "fails" with -32000, "lost" with an unknown session, everything else with its own method
/// name.
net::ClientResponse answer_batch(const net::ClientRequest& request) {
    Json answers = Json::array();
    for (const auto& item : json_of(request)) {
        if (!item.contains("id")) continue;
        const std::string method = item.at("method");
        answers.insert(answers.begin(), method == "fails"  ? error_for(item, -32000, nullptr)
                                        : method == "lost" ? error_for(item, -32005, {{"kind", "session"}})
                                                           : result_for(item, method));
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

/// A batch of these methods.
struct TestBatch {
    explicit TestBatch(std::initializer_list<std::string_view> methods, std::vector<Reply> script = {answer_batch},
                       CallOptions options = {})
        : client(std::move(script), options_for_tests(), std::make_unique<SharingPorts>()),
          state(client.shared_core, std::move(options)) {
        for (const auto method : methods)
            add(method);
    }
    std::size_t add(std::string_view method, const CallOptions& options = {}) {
        return state.append(method, detail::ArgumentsOf<>(), options);
    }
    std::string result(std::size_t index) const {
        detail::ResultOf<std::string> slot;
        state.result(index, slot);
        return slot.take();
    }
    bool shares_memory() const { return !client.core.ports().session().empty(); }

    ScriptedClient client;
    client::BatchState state;
};

}  // namespace

TEST_CASE("A batch is one request, and each item finds its own answer, again and again", "[client]") {
    TestBatch batch({"a", "fails", "b"});
    batch.state.send();
    CHECK(batch.client.tries() == 1);
    CHECK(batch.client.sent().size() == 3);
    CHECK(batch.result(0) == "a");
    CHECK_THROWS_AS(batch.result(1), FunctionFailed);
    CHECK(batch.result(0) == "a");
    CHECK(batch.result(2) == "b");
}

TEST_CASE("A batch whose session the server does not know is sent again without, unless it is one item's own",
          "[client]") {
    TestBatch one({"f", "lost"}),
        all({"a", "b"}, {[](const net::ClientRequest&request) {
                             Json answers = Json::array();
                             for (const auto& item : json_of(request))
                                 answers.push_back(error_for(item, -32005, {{"kind", "session"}}));
                             return answer(200, answers.dump());
                         },
                         answer_batch});
    one.state.send();
    CHECK(one.client.tries() == 1);
    CHECK(one.result(0) == "f");
    CHECK_THROWS_AS(one.result(1), UnknownOrExpired);
    CHECK(one.shares_memory());
    all.state.send();
    CHECK(all.client.tries() == 2);
    CHECK(all.result(0) == "a");
    CHECK_FALSE(all.shares_memory());
}

TEST_CASE("A call about another session does not end the own one", "[client]") {
    ScriptedClient client({rejects(-32005, {{"kind", "session"}})}, options_for_tests(),
                          std::make_unique<SharingPorts>());
    CHECK_THROWS_AS(client.call("session.close", named("session", "s-other")), UnknownOrExpired);
    CHECK(client.tries() == 1);
    CHECK_FALSE(client.core.ports().session().empty());
}

TEST_CASE("A batch of notifications needs no answer, and an empty one sends nothing", "[client]") {
    TestBatch batch({}), empty({});
    batch.state.append_notification("log", detail::ArgumentsOf<>());
    batch.state.send();
    CHECK(batch.client.sent().size() == 1);
    empty.state.send();
    CHECK(empty.client.tries() == 0);
}

TEST_CASE("What the server leaves out fails its item, and an error for the whole batch comes from send", "[client]") {
    TestBatch left_out({"a"}, {says(200, R"([{"jsonrpc":"2.0","id":12345678,"result":1}])")});
    left_out.state.send();
    CHECK_THROWS_AS(left_out.result(0), TransportFailure);
    TestBatch whole({"a"},
                    {says(200, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}})")});
    CHECK_THROWS_AS(whole.state.send(), RpcError);
    CHECK_THROWS_AS(whole.result(0), std::logic_error);
}

TEST_CASE("Results before send and a second send are mistakes of the program", "[client]") {
    TestBatch batch({"a"});
    CHECK_THROWS_AS(batch.result(0), std::logic_error);
    batch.state.send();
    CHECK_THROWS_AS(batch.state.send(), std::logic_error);
    CHECK_THROWS_AS(batch.add("late"), std::logic_error);
}

TEST_CASE("The receipt of a batch describes its one request, also if the batch fails or is empty", "[client]") {
    TestBatch batch({"a"}, {is_not_there(), answer_batch}), failed({"a"}, {breaks()}), empty({});
    Receipt receipt;
    batch.state.send(&receipt);
    CHECK(receipt.tries == 2);
    CHECK(receipt.request_id.ends_with('-' + batch.client.sent(1).at(0).at("id").dump()));
    CHECK_THROWS_AS(failed.state.send(&receipt), TransportFailure);
    CHECK(receipt.tries == 1);
    empty.state.send(&receipt);
    CHECK(receipt.tries == 0);
}

TEST_CASE("Options of an item travel in its meta member, its timeout limited to what servers accept", "[client]") {
    using std::chrono::milliseconds;
    TestBatch batch({"none"});
    batch.add("all",
              CallOptions{.timeout = milliseconds(50), .idempotency_key = "k", .session = "s-1", .require = "shm"});
    for (const milliseconds timeout : {milliseconds(-5), milliseconds(0), milliseconds::max()})
        batch.add("a", within(timeout));
    batch.state.send();
    const Json sent = batch.client.sent();
    CHECK_FALSE(sent.at(0).contains("meta"));
    CHECK(sent.at(1).at("meta") ==
          Json{{"timeout_ms", 50}, {"idempotency_key", "k"}, {"session", "s-1"}, {"require", "shm"}});
    CHECK(sent.at(2).at("meta") == Json{{"timeout_ms", 1}});
    CHECK(sent.at(3).at("meta") == Json{{"timeout_ms", 1}});
    CHECK(sent.at(4).at("meta") == Json{{"timeout_ms", 86'400'000}});
}

TEST_CASE("A batch that may run twice is repeated as a whole, and no key of the client goes with one", "[client]") {
    TestBatch twice({"a"}, {breaks(), answer_batch}, {.idempotent = true});
    twice.state.send();
    CHECK(twice.result(0) == "a");
    TestBatch keyed({"a"}, {breaks(), answer_batch}, {.idempotency_key = "k"});
    CHECK_THROWS_AS(keyed.state.send(), TransportFailure);
    CHECK_FALSE(keyed.client.sender->requests().at(0).headers.find("Idempotency-Key").has_value());
}
