// Objects that stay in the daemon, through the public client.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Numbers = std::map<std::string, int>;

namespace {

ExampleDaemon daemon_with_things(Words options = {}) {
    options.emplace_back("--load");
    options.emplace_back(SHARED_TENSOR_SPEC_PLUGIN);
    return ExampleDaemon(options);
}

int ended(const Client& client, const std::string& name) { return client.call<Numbers>("runs_of", name).at("ended"); }

bool until(const Client& client, const std::string& name, const char* what, int count) {
    return eventually([&] { return client.call<Numbers>("runs_of", name).at(what) >= count; });
}

}  // namespace

TEST_CASE("An object is made, used and ended with the last copy of its handle", "[client][objects]") {
    const auto server = daemon_with_things();
    const bool by_channel = GENERATE(true, false);
    CAPTURE(by_channel);
    const Client client = by_channel ? server.client() : server.far();
    {
        const auto thing = client.call<Object>("make_thing", "first");
        CHECK(thing.type() == "thing");
        CHECK(thing.id().starts_with("o-"));
        const Object copy = thing;
        CHECK(client.call<std::string>("name_of", copy) == "first");
        CHECK(client.call<std::string>("name_of", named("thing", thing)) == "first");
        CHECK(server.totals()["objects"]["handles"] == 1);
        CHECK(ended(client, "first") == 0);
    }
    CHECK(until(client, "first", "ended", 1));
    CHECK(server.totals()["objects"]["handles"] == 0);
}

TEST_CASE("Handles that a call leaves aside are given back", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    client.call("make_thing", "aside");
    CHECK(until(client, "aside", "ended", 1));
    CHECK_THROWS_AS(client.call<double>("make_thing", "misread"), ResultMismatch);
}

TEST_CASE("Many handles are released in few requests, and not by the thread that lets them go", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    auto things = client.call<std::vector<Object>>("make_things", "many", 500);
    CHECK(server.totals()["objects"]["handles"] == 500);
    const auto before = client.statistics().requests;
    things.clear();
    CHECK(eventually([&] { return server.totals()["objects"]["handles"] == 0; }));
    CHECK(client.statistics().requests - before < 100);
    CHECK(until(client, "many", "ended", 500));  // a handle is gone before its object is
}

TEST_CASE("Handles of items that nobody read are given back", "[client][objects][streams]") {
    const ExampleDaemon server = daemon_with_things();
    const Client client = server.client();
    {
        auto call = client.stream("thing_each", 500);
        auto things = std::make_optional(call.reader<Object>());
        CHECK(eventually([&] { return server.totals()["objects"]["granted"] == 500; }));  // fewer than a window
        const auto first = things->next();
        REQUIRE(first);
        things.reset();
        CHECK(client.call<std::string>("name_of", *first) == "one");
        call.result();
        CHECK(client.call<std::string>("name_of", *first) == "one");
        CHECK(eventually([&] { return server.totals()["objects"]["handles"] == 1; }));
    }
    CHECK(eventually([&] { return server.totals()["objects"]["handles"] == 0; }));
}

TEST_CASE("A handle keeps its client's connections", "[client][objects]") {
    const auto server = daemon_with_things();
    Object thing;
    {
        const Client maker = server.client();
        thing = maker.call<Object>("make_thing", "kept");
    }
    const Client other = server.client();
    CHECK(other.call<std::string>("name_of", thing) == "kept");
    thing = {};
    CHECK(until(other, "kept", "ended", 1));
}

TEST_CASE("An object that a function returns again is the same one with a further handle", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    auto first = client.call<Object>("make_thing", "again");
    const auto second = client.call<Object>("same_thing", first);
    CHECK(first.id() != second.id());
    CHECK(server.totals()["objects"]["objects"] == 1);
    CHECK(server.totals()["objects"]["handles"] == 2);
    first = {};
    CHECK(eventually([&] { return server.totals()["objects"]["handles"] == 1; }));
    CHECK(client.call<std::string>("name_of", second) == "again");
    CHECK(ended(client, "again") == 0);
}

TEST_CASE("A wrong type is told, and so is a handle that is no more", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    const auto thing = client.call<Object>("make_thing", "typed");
    const auto vocabulary = client.call<Object>("vocabulary.make", std::vector<std::string>{"a", "b"});
    CHECK(client.call<std::vector<int>>("vocabulary.numbers", vocabulary, std::vector<std::string>{"b", "x"}) ==
          std::vector<int>{1, -1});
    try {
        client.call("vocabulary.add", thing, "c");
        FAIL("taken");
    } catch (const InvalidParams& error) {
        const Json data = Json::parse(error.data());
        CHECK(data["parameter"] == "vocabulary");
        CHECK(data["expected"] == "object of type example.vocabulary");
        CHECK(data["got"] == "an object of type thing");
    }
    const auto lookalike = client.call<Object>("false_vocabulary");
    CHECK_THROWS_AS(client.call("vocabulary.add", lookalike, "c"), InvalidParams);
    CHECK_THROWS_AS(client.call("vocabulary.add", 5, "c"), InvalidParams);
    CHECK(client.call<std::string>("type_of", lookalike) == "example.vocabulary");

    client.call("object.release", named("ids", std::vector<std::string>{std::string(thing.id())}));
    try {
        client.call("name_of", thing);
        FAIL("taken");
    } catch (const UnknownOrExpired& error) {
        const Json data = Json::parse(error.data());
        CHECK(data["kind"] == "object");
        CHECK(data["epoch"] == client.info().epoch);
    }
}

TEST_CASE("Concurrent users of an object run at once, an exclusive one waits for them in the queue",
          "[client][objects]") {
    const auto server = daemon_with_things({"--workers", "3"});
    const Client client = server.client();
    const auto thing = client.call<Object>("make_thing", "turns");
    AsyncOptions options;
    options.client.url = server.url();
    options.threads = 8;
    AsyncClient async(options);
    auto one = async.call<int>("hold_with", thing, "reader");
    auto two = async.call<int>("hold_with", thing, "reader");
    REQUIRE(until(client, "reader", "running", 2));
    auto alone = async.call<int>("hold_alone", thing, "writer");
    const auto queued = [&] { return Json::parse(client.info().json)["totals"]["workers"]["queued"]; };
    REQUIRE(eventually([&] { return queued() == 1; }));
    auto late = async.call<std::string>("name_of", thing);
    REQUIRE(eventually([&] { return queued() == 2; }));
    // The third worker is free: those who wait hold none.
    CHECK(client.call<std::string>("greet", "you") == "Hello, you!");
    CHECK(client.call<Numbers>("runs_of", "writer").at("started") == 0);
    client.call("release", "reader");
    REQUIRE(until(client, "writer", "running", 1));
    CHECK(queued() == 1);
    client.call("release", "writer");
    CHECK(late.get() == "turns");
    CHECK(one.get() + two.get() == 1);
    CHECK(alone.get() == 0);
}

TEST_CASE("A task's result gives each of its readers a handle", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    const auto task = client.submit<Object>("make_thing", "task");
    const auto one = task.get(), other = task.get();
    CHECK(one.id() != other.id());
    CHECK(server.totals()["objects"]["objects"] == 1);
    CHECK(client.call<std::string>("name_of", one) == client.call<std::string>("name_of", other));
}

TEST_CASE("No result with an object is cached, nor one of a call with an object", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = server.client();
    const auto one = client.call<Object>("make_thing_once", "cached"),
               other = client.call<Object>("make_thing_once", "cached");
    CHECK(server.totals()["objects"]["objects"] == 2);
    CHECK(client.call<int>("count_runs", one) == 1);
    CHECK(client.call<int>("count_runs", one) == 2);
}

TEST_CASE("Handles without a session end when they are not used; their number is bounded", "[client][objects]") {
    const auto server = daemon_with_things({"--session-idle", "2s", "--max-objects", "6"});
    const Client client = server.far();
    const auto things = client.call<std::vector<Object>>("make_things", "idle", 3);
    CHECK_THROWS_AS(client.call<Object>("make_thing", "one too many"), ServerOutOfMemory);
    CHECK_THROWS_AS(client.call<std::vector<Object>>("make_things", "far too many", 7), ServerOutOfMemory);
    CHECK(until(client, "far too many", "ended", 7));
    CHECK(until(client, "idle", "ended", 3));
    CHECK_THROWS_AS(client.call("name_of", things[0]), UnknownOrExpired);
    CHECK(server.totals()["objects"]["expired"] == 3);
}

TEST_CASE("What a session was given ends with it", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client client = GENERATE(true, false) ? server.client() : server.far();
    auto session = std::make_unique<Client>(client.new_session());
    const auto thing = session->call<Object>("make_thing", "session");
    CHECK(client.call<std::string>("name_of", thing) == "session");
    CHECK(client.call<Json>("object.info", std::string(thing.id()))["uses"] == 1);
    session.reset();
    CHECK(until(client, "session", "ended", 1));
    CHECK_THROWS_AS(client.call("name_of", thing), UnknownOrExpired);
}

TEST_CASE("A client that is killed leaves no object behind", "[client][objects]") {
    const auto server = daemon_with_things();
    const Client watcher = server.client();
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const Client client = server.client();
        const auto thing = client.call<Object>("make_thing", "killed");
        const char word = thing ? 'y' : 'n';
        (void)!::write(ready[1], &word, 1);
        ::pause();
        ::_exit(0);
    }
    char word = 0;
    REQUIRE(::read(ready[0], &word, 1) == 1);
    CHECK(server.totals()["objects"]["handles"] == 1);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(until(watcher, "killed", "ended", 1));
    CHECK(server.totals()["objects"]["handles"] == 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE("A model's instance is an object with a state of its own", "[client][objects][models]") {
    const ExampleDaemon server({"--model", std::string("vad=") + kSileroModel});
    const Client client = server.client();
    const at::Tensor window = at::mul(at::arange(512, at::kFloat).view({1, 512}).sin(), 0.3);
    const auto heard = [&](const Object& instance) {
        return client
            .call<at::Tensor>("vad.forward", named("x", window), named("sr", 16000), named("instance", instance))
            .item<float>();
    };
    const auto one = client.call<Object>("model.create", "vad"), other = client.call<Object>("model.create", "vad");
    CHECK(one.type() == "model.vad");
    const float first = heard(one), second = heard(one);
    CHECK(first != second);
    CHECK(heard(other) == first);
    CHECK(heard(other) == second);
    client.call("vad.reset_states", named("instance", one));
    CHECK(heard(one) == first);
    const auto without = client.call<at::Tensor>("vad.forward", window, 16000).item<float>();
    CHECK(without == first);
    CHECK_THROWS_AS(client.call<Object>("model.create", "nothing"), InvalidParams);
    const auto words = client.call<Object>("vocabulary.make", std::vector<std::string>{});
    CHECK_THROWS_AS(heard(words), InvalidParams);
}
