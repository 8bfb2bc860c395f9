#include "runtime/tables/tensor_store.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using runtime::member_name_rejection;
using runtime::NamedPointer;
using runtime::tensor_name_rejection;
using runtime::TensorStore;

namespace {

/// Counts those that are alive.
class Content final : public runtime::NamedContent {
public:
    explicit Content(std::uint64_t bytes, std::atomic<int>* alive = nullptr) : bytes_(bytes), alive_(alive) {
        if (alive_ != nullptr) ++*alive_;
    }
    Content(const Content&) = delete;
    Content& operator=(const Content&) = delete;
    ~Content() override {
        if (alive_ != nullptr) --*alive_;
    }
    std::uint64_t bytes() const override { return bytes_; }

private:
    std::uint64_t bytes_;
    std::atomic<int>* alive_;
};

std::shared_ptr<Content> content(std::uint64_t bytes = 1) { return std::make_shared<Content>(bytes); }

NamedPointer put(TensorStore& store, std::string_view name, std::uint64_t bytes = 1, std::string_view owner = "ann") {
    auto made = store.put(owner, name, content(bytes));
    REQUIRE(std::holds_alternative<NamedPointer>(made));
    return std::get<NamedPointer>(made);
}

TensorStore::Rejected rejected(const std::variant<NamedPointer, TensorStore::Rejected>& made) {
    REQUIRE(std::holds_alternative<TensorStore::Rejected>(made));
    return std::get<TensorStore::Rejected>(made);
}

std::vector<std::string> names_of(const runtime::NamedPage& page) {
    std::vector<std::string> names;
    for (const auto& named : page.list)
        names.push_back(named->owner + ':' + named->name);
    return names;
}

SteadyTime soon() { return real_clock().now() + 30s; }

}  // namespace

TEST_CASE("a name gets a new version with every put, and its own ones", "[tensor_store]") {
    TensorStore store;
    CHECK(put(store, "a")->version == 1);
    CHECK(put(store, "b")->version == 1);
    CHECK(put(store, "a")->version == 2);
    CHECK(store.find("ann", "a")->version == 2);
    CHECK(store.find("ann", "c") == nullptr);
}

TEST_CASE("versions of a name grow over a removal", "[tensor_store]") {
    TensorStore store;
    put(store, "a");
    put(store, "a");
    REQUIRE(std::get<NamedPointer>(store.remove("ann", "a"))->version == 2);
    CHECK(store.find("ann", "a") == nullptr);
    CHECK(put(store, "a")->version == 3);
    CHECK(std::get<NamedPointer>(store.remove("ann", "gone")) == nullptr);
}

TEST_CASE("each owner has names of its own", "[tensor_store]") {
    TensorStore store;
    put(store, "a", 1, "ann");
    CHECK(store.find("bob", "a") == nullptr);
    CHECK(put(store, "a", 1, "bob")->version == 1);
    CHECK(std::get<NamedPointer>(store.remove("bob", "a")) != nullptr);
    CHECK(store.find("ann", "a") != nullptr);
}

TEST_CASE("a reader keeps its version, and it goes with the last reader", "[tensor_store]") {
    TensorStore store;
    std::atomic<int> alive{0};
    store.put("ann", "a", std::make_shared<Content>(5, &alive));
    auto reader = store.find("ann", "a");
    auto other = reader;
    store.put("ann", "a", std::make_shared<Content>(7, &alive));
    CHECK(alive == 2);
    CHECK(reader->content->bytes() == 5);
    CHECK(store.find("ann", "a")->content->bytes() == 7);
    reader.reset();
    CHECK(alive == 2);
    other.reset();
    CHECK(alive == 1);
    store.remove("ann", "a");
    CHECK(alive == 0);
}

TEST_CASE("a put may ask for the version that it takes the place of", "[tensor_store]") {
    TensorStore store;
    CHECK(rejected(store.put("ann", "a", content(), 1)).version == 0);
    CHECK(std::get<NamedPointer>(store.put("ann", "a", content(), 0))->version == 1);
    const auto no = rejected(store.put("ann", "a", content(), 0));
    CHECK(no.conflict);
    CHECK(no.version == 1);
    CHECK(std::get<NamedPointer>(store.put("ann", "a", content(), 1))->version == 2);
    CHECK(rejected(store.remove("ann", "a", 1)).version == 2);
    CHECK(std::get<NamedPointer>(store.remove("ann", "a", 2)) != nullptr);
}

TEST_CASE("of two who replace the same version one comes through", "[tensor_store]") {
    TensorStore store;
    put(store, "a");
    std::atomic<int> through{0};
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (std::uint64_t version = 1; version <= 200; ++version) {
                while (store.find("ann", "a")->version < version)
                    std::this_thread::yield();
                if (std::holds_alternative<NamedPointer>(store.put("ann", "a", content(), version))) ++through;
            }
        });
    }
    threads.clear();
    CHECK(through == 200);
    CHECK(store.find("ann", "a")->version == 201);
}

TEST_CASE("the number of names is bounded, and replacing one is not hindered", "[tensor_store]") {
    TensorStore store(NamedTensorLimits{2, 1000});
    put(store, "a");
    put(store, "b");
    const auto no = rejected(store.put("ann", "c", content()));
    CHECK_FALSE(no.conflict);
    CHECK_THAT(no.reason, ContainsSubstring("--max-named-tensors"));
    CHECK(store.rejection("ann", "c", 1, std::nullopt));
    CHECK_FALSE(store.rejection("ann", "b", 1, std::nullopt));
    put(store, "b");
    store.remove("ann", "a");
    put(store, "c");
    CHECK(store.stats().names == 2);
}

TEST_CASE("the bytes are bounded, those of the replaced version not counted", "[tensor_store]") {
    TensorStore store(NamedTensorLimits{10, 100});
    put(store, "a", 60);
    put(store, "b", 40);
    CHECK_THAT(rejected(store.put("ann", "c", content(1))).reason, ContainsSubstring("--max-named-bytes"));
    put(store, "a", 50);
    put(store, "c", 10);
    CHECK(store.rejection("ann", "d", UINT64_MAX, std::nullopt));
    CHECK(store.stats().bytes == 100);
    store.remove("ann", "b");
    CHECK(store.stats().bytes == 60);
}

TEST_CASE("lists go by owner and name, in pages", "[tensor_store]") {
    TensorStore store;
    for (const char* name : {"b", "ab", "aa", "c"})
        put(store, name);
    put(store, "a", 1, "bob");
    using Names = std::vector<std::string>;
    CHECK(names_of(store.list({"ann", "", "", 100})) == Names{"ann:aa", "ann:ab", "ann:b", "ann:c"});
    CHECK(names_of(store.list({"ann", "a", "", 100})) == Names{"ann:aa", "ann:ab"});
    CHECK(names_of(store.list({std::nullopt, "a", "", 100})) == Names{"ann:aa", "ann:ab", "bob:a"});
    CHECK(names_of(store.list({"nobody", "", "", 100})).empty());
    Names all;
    runtime::NamedPage page;
    do {
        page = store.list({std::nullopt, "", page.next_cursor, 2});
        for (auto& name : names_of(page))
            all.push_back(std::move(name));
    } while (!page.next_cursor.empty());
    CHECK(all == Names{"ann:aa", "ann:ab", "ann:b", "ann:c", "bob:a"});
    CHECK(names_of(store.list({"ann", "", "invented", 100})).size() == 4);
}

TEST_CASE("a wait ends at once when the version is another one already", "[tensor_store]") {
    TensorStore store;
    put(store, "a");
    CHECK(store.wait("ann", "a", 0, soon())->version == 1);
    CHECK(store.wait("ann", "a", 7, soon())->version == 1);
    CHECK(store.wait("ann", "gone", 3, soon()) == nullptr);
}

TEST_CASE("a wait ends with the next version, a removal, its deadline or its client", "[tensor_store]") {
    TensorStore store;
    put(store, "a");
    std::atomic<std::uint64_t> seen{0};
    std::atomic<bool> asked{false};
    const auto told = [&] {
        asked = true;
        return false;
    };
    SECTION("the next version") {
        std::jthread reader([&] { seen = store.wait("ann", "a", 1, soon(), told)->version; });
        while (!asked)
            std::this_thread::yield();
        put(store, "b");
        put(store, "a");
        reader.join();
        CHECK(seen == 2);
    }
    SECTION("the first version") {
        std::jthread reader([&] { seen = store.wait("ann", "new", 0, soon(), told)->version; });
        while (!asked)
            std::this_thread::yield();
        put(store, "new");
        reader.join();
        CHECK(seen == 1);
    }
    SECTION("a removal") {
        std::jthread reader([&] { seen = store.wait("ann", "a", 1, soon(), told) == nullptr ? 9 : 0; });
        while (!asked)
            std::this_thread::yield();
        store.remove("ann", "a");
        reader.join();
        CHECK(seen == 9);
    }
    SECTION("its deadline") { CHECK(store.wait("ann", "a", 1, real_clock().now() + 1ms)->version == 1); }
    SECTION("its client") {
        CHECK(store.wait("ann", "a", 1, soon(), [] { return true; })->version == 1);
    }
    SECTION("the end of the server") {
        std::jthread reader([&] { seen = store.wait("ann", "a", 1, soon(), told)->version; });
        while (!asked)
            std::this_thread::yield();
        store.close();
        reader.join();
        CHECK(seen == 1);
        CHECK(store.closed());
    }
}

TEST_CASE("a version that is waited over is not kept by those who wait", "[tensor_store]") {
    TensorStore store;
    std::atomic<int> alive{0};
    store.put("ann", "a", std::make_shared<Content>(1, &alive));
    std::atomic<bool> asked{false}, go_on{true};
    std::jthread reader([&] {
        store.wait("ann", "b", 0, soon(), [&] {
            asked = true;
            return !go_on;
        });
    });
    while (!asked)
        std::this_thread::yield();
    store.remove("ann", "a");
    CHECK(alive == 0);
    go_on = false;
    put(store, "b");
}

TEST_CASE("names that cannot be are rejected with the reason", "[tensor_store]") {
    for (const char* name : {"a", "weights", "w 1", "llama-7b", "l", "a.npy.x", "größe", "$x", ".hidden"}) {
        INFO(name);
        CHECK(tensor_name_rejection(name).empty());
    }
    CHECK(tensor_name_rejection(std::string(255, 'x')).empty());
    const std::array<std::string, 12> bad{"",
                                          "l-1",
                                          "a/b",
                                          "x.npy",
                                          "x.safetensors",
                                          "x.raw",
                                          "a\nb",
                                          std::string(256, 'x'),
                                          ".",
                                          "..",
                                          "\xff",
                                          std::string("a\0b", 3)};
    for (const std::string& name : bad) {
        INFO(name);
        CHECK_FALSE(tensor_name_rejection(name).empty());
    }
    CHECK(member_name_rejection("layers/0.weight.npy").empty());
    CHECK(member_name_rejection(std::string(1024, 'x')).empty());
    CHECK_FALSE(member_name_rejection("").empty());
    CHECK_FALSE(member_name_rejection("__metadata__").empty());
    CHECK_FALSE(member_name_rejection(std::string(1025, 'x')).empty());
}
