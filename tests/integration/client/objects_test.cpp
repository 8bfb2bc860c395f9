// Objects that stay in the daemon, through the public client.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <memory>
#include <optional>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>

#include "integration/client/transfers.hpp"
#include "integration/server/shared_daemon.hpp"
#include "support/forked_child.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// The first of several objects. Its codec throws an exception of its own after it.
struct FirstOnly {};

}  // namespace

template <>
struct shared_tensor::Codec<FirstOnly> {
    static FirstOnly read(const ValueReader& reader) {
        const Object first = Codec<Object>::read(reader.element(0));
        throw std::runtime_error("no more than " + std::string(first.type()));
    }
    static void write(ValueWriter writer, const FirstOnly&) { writer.null(); }
    static void schema(ValueWriter writer) { writer.object(); }
};

namespace {

/// A daemon, and things in it whose end is seen as the end of a run: most under the daemon's name.
struct Things {
    explicit Things(const Words& options = {}) : daemon(options) {}

    Object make() const { return client.call<Object>("make_thing", daemon.name); }
    std::string name_of(const Object& thing) const { return client.call<std::string>("name_of", thing); }
    /// A total of the table of objects: handles, objects, granted, expired.
    int total(const char* what) const { return daemon.totals()["objects"][what]; }
    bool handles_become(int count) const {
        return eventually([&] { return total("handles") == count; });
    }

    OwnDaemon daemon;
    Client client{daemon.url()};
};

template <class Error, class Call>
Json data_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return Json::parse(error.data());
    }
    return "no such error";
}

}  // namespace

TEST_CASE_METHOD(Things, "An object is made, used and ended with the last copy of its handle", "[client][objects]") {
    const bool by_channel = GENERATE(true, false);
    CAPTURE(by_channel);
    const Client user = by_channel ? client : far_client(daemon.url());
    {
        const auto thing = user.call<Object>("make_thing", daemon.name);
        CHECK(thing.type() == "thing");
        CHECK(thing.id().starts_with("o-"));
        const Object copy = thing;
        CHECK(user.call<std::string>("name_of", copy) == daemon.name);
        CHECK(user.call<std::string>("name_of", named("thing", thing)) == daemon.name);
        CHECK(total("handles") == 1);
        CHECK(daemon.runs("ended") == 0);
    }
    CHECK(daemon.until("ended"));
    CHECK(total("handles") == 0);
}

TEST_CASE_METHOD(Things, "Many handles are released in few requests, and those that a call leaves aside too",
                 "[client][objects]") {
    auto things = client.call<std::vector<Object>>("make_things", daemon.name, 500);
    CHECK(total("handles") == 500);
    const auto before = client.statistics().requests;
    things.clear();
    CHECK(handles_become(0));
    CHECK(client.statistics().requests - before < 100);
    CHECK(daemon.until("ended", 500));  // a handle is gone before its object is
    client.call("make_thing", daemon.name);
    CHECK(daemon.until("ended", 501));
    CHECK_THROWS_AS(client.call<double>("make_thing", daemon.name), ResultMismatch);
    CHECK_THROWS_AS(client.call<std::vector<std::string>>("make_things", daemon.name, 2), ResultMismatch);
    CHECK(daemon.until("ended", 504));
}

TEST_CASE_METHOD(Things, "Handles in results that nobody reads, or reads to their end, are given back",
                 "[client][objects]") {
    client.call("make_things", daemon.name, 3);  // a result that is ignored
    CHECK(handles_become(0));
    {
        Batch batch = client.batch();
        batch.add<std::vector<Object>>("make_things", daemon.name, 4);
        batch.send();
    }
    CHECK(handles_become(0));
    CHECK_THROWS_AS(client.call<FirstOnly>("make_things", daemon.name, 5), std::runtime_error);
    CHECK(handles_become(0));
    const auto kept = client.call<std::vector<Object>>("make_things", daemon.name, 2);
    CHECK(total("handles") == 2);
    CHECK(name_of(kept[0]) == daemon.name);
}

TEST_CASE_METHOD(Things, "Handles of items that nobody read are given back", "[client][objects][streams]") {
    {
        auto call = client.stream("thing_each", 500);
        auto things = std::make_optional(call.reader<Object>());
        CHECK(eventually([&] { return total("granted") == 500; }));  // fewer than a window
        const auto first = things->next();
        REQUIRE(first);
        things.reset();
        CHECK(name_of(*first) == "one");
        call.result();
        CHECK(name_of(*first) == "one");
        CHECK(handles_become(1));
    }
    CHECK(handles_become(0));
}

TEST_CASE_METHOD(Things, "A handle keeps its client's connections", "[client][objects]") {
    Object thing = Client(daemon.url()).call<Object>("make_thing", daemon.name);
    CHECK(name_of(thing) == daemon.name);
    thing = {};
    CHECK(daemon.until("ended"));
}

TEST_CASE_METHOD(Things, "An object that is returned again is the same one with a further handle",
                 "[client][objects]") {
    auto first = make();
    const auto second = client.call<Object>("same_thing", first);
    CHECK(first.id() != second.id());
    CHECK(total("objects") == 1);
    CHECK(total("handles") == 2);
    first = {};
    CHECK(handles_become(1));
    CHECK(name_of(second) == daemon.name);
    CHECK(daemon.runs("ended") == 0);

    const auto task = client.submit<Object>("make_thing", "task");  // each reader of its result gets a handle
    const auto one = task.get(), other = task.get();
    CHECK(one.id() != other.id());
    CHECK(total("objects") == 2);
    CHECK(name_of(one) == name_of(other));
}

TEST_CASE_METHOD(Things, "A wrong type is told, and so is a handle that is no more", "[client][objects]") {
    const auto thing = make();
    using Strings = std::vector<std::string>;
    const auto vocabulary = client.call<Object>("vocabulary.make", Strings{"a", "b"});
    CHECK(client.call<std::vector<int>>("vocabulary.numbers", vocabulary, Strings{"b", "x"}) ==
          std::vector<int>{1, -1});
    const Json wrong = data_of<InvalidParams>([&] { client.call("vocabulary.add", thing, "c"); });
    CHECK(wrong["parameter"] == "vocabulary");
    CHECK(wrong["expected"] == "object of type example.vocabulary");
    CHECK(wrong["got"] == "an object of type thing");
    const auto lookalike = client.call<Object>("false_vocabulary");
    CHECK_THROWS_AS(client.call("vocabulary.add", lookalike, "c"), InvalidParams);
    CHECK_THROWS_AS(client.call("vocabulary.add", 5, "c"), InvalidParams);
    CHECK(client.call<std::string>("type_of", lookalike) == "example.vocabulary");

    client.call("object.release", named("ids", Strings{std::string(thing.id())}));
    const Json gone = data_of<UnknownOrExpired>([&] { name_of(thing); });
    CHECK(gone["kind"] == "object");
    CHECK(gone["epoch"] == client.info().epoch);
}

TEST_CASE("Concurrent users of an object run at once, an exclusive one waits for them in the queue",
          "[client][objects]") {
    const Things things({"--workers", "3"});
    const Calls &readers = things.daemon, writer(readers.port());
    const auto thing = things.make();
    AsyncClient async(AsyncOptions{.client = {.url = things.daemon.url()}, .threads = 8});
    auto one = async.call<int>("hold_with", thing, readers.name);
    auto two = async.call<int>("hold_with", thing, readers.name);
    REQUIRE(readers.until("running", 2));
    auto alone = async.call<int>("hold_alone", thing, writer.name);
    const auto queued = [&] { return readers.totals()["workers"]["queued"]; };
    REQUIRE(eventually([&] { return queued() == 1; }));
    auto late = async.call<std::string>("name_of", thing);
    REQUIRE(eventually([&] { return queued() == 2; }));
    // The third worker is free: those who wait hold none.
    CHECK(things.client.call<std::string>("greet", "you") == "Hello, you!");
    CHECK(writer.runs("started") == 0);
    readers.release();
    REQUIRE(writer.until("running"));
    CHECK(queued() == 1);
    writer.release();
    CHECK(late.get() == readers.name);
    CHECK(one.get() + two.get() == 1);
    CHECK(alone.get() == 0);
}

TEST_CASE_METHOD(Things, "No result with an object is cached, nor one of a call with an object", "[client][objects]") {
    const auto one = client.call<Object>("make_thing_once", daemon.name),
               other = client.call<Object>("make_thing_once", daemon.name);
    CHECK(total("objects") == 2);
    CHECK(client.call<int>("count_runs", one) == 1);
    CHECK(client.call<int>("count_runs", one) == 2);
}

TEST_CASE("Handles without a session end when they are not used; their number is bounded", "[client][objects]") {
    const Things things({"--session-idle", "5s", "--max-objects", "6"});
    const Client far = far_client(things.daemon.url());
    const Calls many(things.daemon.port());
    const auto made = far.call<std::vector<Object>>("make_things", things.daemon.name, 3);
    CHECK_THROWS_AS(far.call<Object>("make_thing", "one too many"), ServerOutOfMemory);
    CHECK_THROWS_AS(far.call<std::vector<Object>>("make_things", many.name, 7), ServerOutOfMemory);
    CHECK(many.until("ended", 7));
    CHECK(things.daemon.until("ended", 3));
    CHECK_THROWS_AS(far.call("name_of", made[0]), UnknownOrExpired);
    CHECK(things.total("expired") == 3);
}

TEST_CASE_METHOD(Things, "What a session was given ends with it", "[client][objects]") {
    const Client user = GENERATE(true, false) ? client : far_client(daemon.url());
    auto session = std::make_unique<Client>(user.new_session());
    const auto thing = session->call<Object>("make_thing", daemon.name);
    CHECK(name_of(thing) == daemon.name);
    CHECK(user.call<Json>("object.info", std::string(thing.id()))["uses"] == 1);
    session.reset();
    CHECK(daemon.until("ended"));
    CHECK_THROWS_AS(name_of(thing), UnknownOrExpired);
}

TEST_CASE_METHOD(Things, "A client that is killed leaves no object behind", "[client][objects]") {
    const Pipe made;
    ForkedChild child([&] {
        const Client killed(daemon.url());
        const auto thing = killed.call<Object>("make_thing", daemon.name);
        made.tell();
        ::kill(::getpid(), SIGKILL);
    });
    REQUIRE(made.wait() == '.');
    CHECK_FALSE(child.fault().empty());
    CHECK(daemon.until("ended"));
    CHECK(total("granted") == 1);
    CHECK(total("handles") == 0);
}

TEST_CASE("A model's instance is an object with a state of its own", "[client][objects][models]") {
    const ExampleDaemon server({"--model", std::string("vad=") + kSileroModel});
    const Client client = server.client();
    std::vector<float> samples(512);
    for (std::size_t i = 0; i < samples.size(); ++i)
        samples[i] = 0.3F * std::sin(static_cast<float>(i));
    const TensorRef window = tensor_of(samples, {1, 512});
    const auto probability = [](const TensorRef& result) { return elements_of<float>(result).at(0); };
    const auto heard = [&](const Object& instance) {
        return probability(
            client.call<TensorRef>("vad.forward", named("x", window), named("sr", 16000), named("instance", instance)));
    };
    const auto one = client.call<Object>("model.create", "vad"), other = client.call<Object>("model.create", "vad");
    CHECK(one.type() == "model.vad");
    const float first = heard(one), second = heard(one);
    CHECK(first != second);
    CHECK(heard(other) == first);
    CHECK(heard(other) == second);
    client.call("vad.reset_states", named("instance", one));
    CHECK(heard(one) == first);
    CHECK(probability(client.call<TensorRef>("vad.forward", window, 16000)) == first);
    CHECK_THROWS_AS(client.call<Object>("model.create", "nothing"), InvalidParams);
    const auto words = client.call<Object>("vocabulary.make", std::vector<std::string>{});
    CHECK_THROWS_AS(heard(words), InvalidParams);
}
