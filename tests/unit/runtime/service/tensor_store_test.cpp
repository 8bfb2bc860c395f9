#include "runtime/tables/tensor_store.hpp"

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
    Content(std::uint64_t bytes, std::shared_ptr<int> alive) : bytes_(bytes), alive_(std::move(alive)) {}
    std::uint64_t bytes() const override { return bytes_; }

private:
    const std::uint64_t bytes_;
    const std::shared_ptr<int> alive_;
};

struct Store {
    explicit Store(NamedTensorLimits limits = {}) : store(limits) {}

    /// The version, or why there is none: the reason, or the version that there is.
    std::string put(std::string_view name, std::uint64_t bytes = 1, std::optional<std::uint64_t> if_version = {},
                    std::string_view owner = "ann") {
        return text(store.put(owner, name, std::make_shared<Content>(bytes, alive), {if_version, {}}));
    }
    std::string put_as(std::uint64_t version, std::string_view name) {
        return text(store.put("ann", name, std::make_shared<Content>(1, alive), {{}, version}));
    }
    std::string remove(std::string_view name, std::string_view owner = "ann") {
        return text(store.remove(owner, name, std::nullopt));
    }
    static std::string text(const std::variant<NamedPointer, TensorStore::Rejected>& made) {
        if (const auto* rejected = std::get_if<TensorStore::Rejected>(&made))
            return rejected->conflict ? "conflict: " + std::to_string(rejected->version)
                   : rejected->is_low ? "low: " + std::to_string(rejected->version)
                                      : rejected->reason;
        const NamedPointer& named = std::get<NamedPointer>(made);
        return named == nullptr ? "nothing" : std::to_string(named->version);
    }
    std::uint64_t version(std::string_view name, std::string_view owner = "ann") const {
        const NamedPointer found = store.find(owner, name);
        return found == nullptr ? 0 : found->version;
    }
    bool has_room(std::string_view name, std::uint64_t bytes) const { return !store.rejection("ann", name, bytes, {}); }
    std::string names(const runtime::NamedFilter& filter) const {
        std::string names;
        for (const auto& named : store.list(filter).list)
            names += named->owner + ':' + named->name + ' ';
        return names;
    }
    long contents() const { return alive.use_count() - 1; }

    TensorStore store;
    std::shared_ptr<int> alive = std::make_shared<int>();
};

}  // namespace

TEST_CASE("each name of each owner gets a new version with every put, also after a removal", "[tensor_store]") {
    Store ann;
    CHECK(ann.put("a") == "1");
    CHECK(ann.put("b") == "1");
    CHECK(ann.put("a") == "2");
    CHECK(ann.version("a") == 2);
    CHECK(ann.version("a", "bob") == 0);
    CHECK(ann.put("a", 1, {}, "bob") == "1");
    CHECK(ann.remove("a", "bob") == "1");
    CHECK(ann.remove("a") == "2");
    CHECK(ann.remove("a") == "nothing");
    CHECK(ann.version("a") == 0);
    CHECK(ann.put("a") == "3");
    CHECK(ann.version("b") == 1);
}

TEST_CASE("a put may name its version, which must be above the current one", "[tensor_store]") {
    Store ann;
    CHECK(ann.put_as(7, "a") == "7");
    CHECK(ann.put_as(7, "a") == "low: 7");
    CHECK(ann.put_as(6, "a") == "low: 7");
    CHECK(ann.put_as(9, "a") == "9");
    CHECK(ann.put("a") == "10");
    CHECK(ann.put_as(2, "b") == "2");
    ann.remove("a");
    CHECK(ann.put_as(3, "c") == "3");  // versions of deleted names only hold for those that the store chooses
    CHECK(ann.put("d") == "11");
}

TEST_CASE("of those who replace the same version at once one comes through", "[tensor_store]") {
    Store ann;
    ann.put("a");
    std::atomic<int> through{0};
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (std::uint64_t version = 1; version <= 200; ++version) {
                while (ann.version("a") < version)
                    std::this_thread::yield();
                if (!ann.put("a", 1, version).starts_with("conflict")) ++through;
            }
        });
    }
    threads.clear();
    CHECK(through == 200);
    CHECK(ann.version("a") == 201);
}

TEST_CASE("names and their bytes are bounded, and replacing one is not hindered", "[tensor_store]") {
    Store few(NamedTensorLimits{2, 1000}), small(NamedTensorLimits{10, 100});
    few.put("a");
    few.put("b");
    CHECK_THAT(few.put("c"), ContainsSubstring("--max-named-tensors"));
    CHECK_FALSE(few.has_room("c", 1));
    CHECK(few.has_room("b", 1));
    CHECK(few.put("b") == "2");
    few.remove("a");
    CHECK(few.put("c") == "2");  // above all versions of names that were removed
    CHECK(few.store.stats().names == 2);

    small.put("a", 60);
    small.put("b", 40);
    CHECK_THAT(small.put("c", 1), ContainsSubstring("--max-named-bytes"));
    CHECK(small.put("a", 50) == "2");  // the bytes of the replaced version are not counted
    CHECK(small.put("c", 10) == "1");
    CHECK_FALSE(small.has_room("d", UINT64_MAX));
    CHECK(small.store.stats().bytes == 100);
    small.remove("b");
    CHECK(small.store.stats().bytes == 60);
}

TEST_CASE("lists go by owner and name, in pages", "[tensor_store]") {
    Store all;
    for (const char* name : {"b", "ab", "aa", "c"})
        all.put(name);
    all.put("a", 1, {}, "bob");
    CHECK(all.names({"ann", "", "", 100}) == "ann:aa ann:ab ann:b ann:c ");
    CHECK(all.names({"ann", "a", "", 100}) == "ann:aa ann:ab ");
    CHECK(all.names({std::nullopt, "a", "", 100}) == "ann:aa ann:ab bob:a ");
    CHECK(all.names({"nobody", "", "", 100}).empty());
    CHECK(all.names({"ann", "", "invented", 100}) == "ann:aa ann:ab ann:b ann:c ");
    std::string pages, cursor;
    do {
        pages += all.names({std::nullopt, "", cursor, 2}) + '/';
        cursor = all.store.list({std::nullopt, "", cursor, 2}).next_cursor;
    } while (!cursor.empty());
    CHECK(pages == "ann:aa ann:ab /ann:b ann:c /bob:a /");
}

TEST_CASE("a version that is waited over is not kept by those who wait", "[tensor_store]") {
    Store ann;
    ann.put("a");
    std::atomic<bool> asked{false}, go_on{true};
    std::jthread reader([&] {
        ann.store.wait("ann", "b", 0, real_clock().now() + 30s, [&] {
            asked = true;
            return !go_on;
        });
    });
    while (!asked)
        std::this_thread::yield();
    ann.remove("a");
    CHECK(ann.contents() == 0);
    go_on = false;
    ann.put("b");
}

TEST_CASE("names that cannot be are rejected with the reason", "[tensor_store]") {
    using namespace std::string_view_literals;
    const std::string longest(255, 'x'), longest_member(1024, 'x');
    CHECK(tensor_name_rejection(longest).empty());
    for (const std::string_view name :
         {"a"sv, "weights"sv, "w 1"sv, "llama-7b"sv, "l"sv, "a.npy.x"sv, "größe"sv, "$x"sv, ".hidden"sv})
        CHECK(tensor_name_rejection(name).empty());
    for (const std::string_view name : {""sv, "l-1"sv, "a/b"sv, "x.npy"sv, "x.safetensors"sv, "x.raw"sv, "a\nb"sv,
                                        "."sv, ".."sv, "\xff"sv, "a\0b"sv, "a\xc2\x85"sv, "a\u202eb"sv})
        CHECK_FALSE(tensor_name_rejection(name).empty());
    CHECK_FALSE(tensor_name_rejection(longest + 'x').empty());
    CHECK(member_name_rejection("layers/0.weight.npy").empty());
    CHECK(member_name_rejection(longest_member).empty());
    for (const std::string& name : {std::string(), std::string("__metadata__"), longest_member + 'x'})
        CHECK_FALSE(member_name_rejection(name).empty());
}

TEST_CASE("older versions are kept while there are few enough and there is room", "[tensor_store]") {
    Store kept({.max_bytes = 100, .older_versions = 2});
    const auto versions = [&](std::string_view name) {
        std::string text;
        for (const NamedPointer& named : kept.store.older("ann", name))
            text += std::to_string(named->version) + ' ';
        return text;
    };
    CHECK(versions("a").empty());
    for (int i = 0; i < 4; ++i)
        kept.put("a", 20);
    CHECK(versions("a") == "3 2 ");
    CHECK(kept.contents() == 3);
    CHECK(kept.store.stats().bytes == 60);
    kept.put("b", 20);
    kept.put("b", 20);
    CHECK(versions("b") == "1 ");
    CHECK(kept.put("c", 30) == "1");  // 70 bytes of the newest versions, and room for one older version
    CHECK(versions("a").empty());
    CHECK(versions("b") == "1 ");
    CHECK(kept.store.stats().bytes == 90);
    CHECK(kept.put("a", 50) == "5");
    CHECK(versions("a").empty());
    CHECK(versions("b").empty());
    CHECK_THAT(kept.put("d", 1), ContainsSubstring("--max-named-bytes"));
    kept.remove("a");
    kept.put("b", 20);
    CHECK(versions("b") == "2 ");
    kept.remove("b");
    kept.remove("c");
    CHECK(kept.contents() == 0);
    CHECK(kept.store.stats().bytes == 0);
}
