// When arguments in the caller's memory become the server's own.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <memory>
#include <new>

#include "protocol/codec/value.hpp"
#include "support/daemon.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

struct Lent final : codec::LentMemory {
    explicit Lent(std::atomic<bool>& is_taken) : taken(is_taken) {}
    std::uint64_t bytes() const override { return 8; }
    bool shows(const void*) const override { return false; }
    std::uint64_t take_over(std::shared_ptr<const void>) override { return taken.exchange(true) ? 0 : bytes(); }
    MemoryBlock take(std::uint64_t) const override { return {}; }
    std::atomic<bool>& taken;  // outlives it: the memory lives as long as its tensor
};

/// A tensor that lies in the sender's memory, and keeps it.
class LentTensor final : public codec::TensorHandle {
public:
    explicit LentTensor(std::shared_ptr<Lent> memory) : memory_(std::move(memory)) {}
    const TensorRef& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return memory_->bytes(); }
    bool on_device() const override { return false; }
    /// What the sender could still change stands for other bytes than what it cannot.
    bool append_key(std::string& key) const override {
        key += memory_->taken ? "taken" : "lent";
        return true;
    }
    void append_digest(std::string& key) const override { key += "digest"; }

private:
    const std::shared_ptr<Lent> memory_;
    static inline std::uint8_t element = 0;
    const TensorRef tensor_{&element, DType::uint8, {1}, {}, {}, memory_};
};

class LendingPort final : public codec::TensorPort {
public:
    codec::TensorPointer import(const codec::Json&) override {
        const auto memory = std::make_shared<Lent>(taken);
        lent_.emplace_back(memory);
        return std::make_shared<LentTensor>(memory);
    }
    codec::TensorPointer wrap(const TensorRef&) override { return nullptr; }
    void describe(const codec::TensorPointer&, json_rpc::LongText&) override {}
    std::vector<std::weak_ptr<codec::LentMemory>> take_lent() override { return std::exchange(lent_, {}); }
    void take_over(codec::LentMemory& lent) override {
        if (is_full) throw std::bad_alloc();
        copied += lent.take_over();
    }

    std::atomic<bool> taken{false};
    std::uint64_t copied = 0;
    bool is_full = false;

private:
    std::vector<std::weak_ptr<codec::LentMemory>> lent_;
};

TensorRef kept_by_function;

struct Lending {
    Lending() : dispatcher(registry(), options()) {}

    static Registry registry() {
        Registry functions;
        functions.add("plain", [](const TensorRef&) { return 1; });
        functions.add("keeps", [](const TensorRef& tensor) { kept_by_function = tensor; });
        functions.add(
            "cached", [](const TensorRef&) { return 1; }, cached(1h));
        return functions;
    }
    static runtime::DispatcherOptions options() {
        runtime::DispatcherOptions options;
        options.pool.workers = 1;
        return options;
    }
    /// Whether it was taken; it has ended when this returns.
    bool call(const std::string& method, std::string key = {}, bool is_notification = false) {
        auto started = dispatcher.call({method,
                                        arguments,
                                        {"uid:1", {}, {}},
                                        std::nullopt,
                                        std::move(key),
                                        port,
                                        nullptr,
                                        {},
                                        {},
                                        is_notification});
        if (std::holds_alternative<json_rpc::Error>(started)) return false;
        return std::get<runtime::StartedCall>(started).waiter->wait_until(patience()) != nullptr;
    }
    bool submit(const std::string& method) {
        return std::holds_alternative<std::optional<tasks::TaskInfo>>(
            dispatcher.submit({method, arguments, {"uid:1", {}, {}}, std::nullopt, {}, port}, {}));
    }

    const Json arguments = Json::array({Json{{"$tensor", Json::object()}}});
    LendingPort port;
    runtime::Dispatcher dispatcher;
};

}  // namespace

TEST_CASE("a plain call reads its arguments where they were lent", "[service][lent]") {
    Lending lending;
    CHECK(lending.call("plain"));
    CHECK_FALSE(lending.port.taken);
}

TEST_CASE("what a function keeps of its arguments is the server's own when its caller has the result",
          "[service][lent]") {
    Lending lending;
    CHECK(lending.call("keeps"));
    CHECK(lending.port.taken);
    kept_by_function = {};
}

TEST_CASE("arguments of what may outlive its request are the server's own before it is taken", "[service][lent]") {
    Lending lending;
    SECTION("a task") { CHECK(lending.submit("plain")); }
    SECTION("a notification") { CHECK(lending.call("plain", {}, true)); }
    SECTION("a call with an idempotency key") { CHECK(lending.call("plain", "key")); }
    SECTION("a call that may be cached") { CHECK(lending.call("cached")); }
    CHECK(lending.port.taken);
    CHECK(lending.port.copied == 8);
}

TEST_CASE("a cached result is known by the bytes that its function read", "[service][lent]") {
    Lending lending;
    CHECK(lending.call("cached"));
    CHECK(lending.dispatcher.cache().stats().misses == 1);
    // The caller may have the result a moment before the cache has it.
    CHECK(eventually([&] { return lending.dispatcher.cache().stats().entries == 1; }));
    CHECK(lending.call("cached"));  // now its bytes are those of the first
    CHECK(lending.dispatcher.cache().stats().hits == 1);
}

TEST_CASE("without room for the copies the call is rejected, and a plain one is not", "[service][lent]") {
    Lending lending;
    lending.port.is_full = true;
    CHECK_FALSE(lending.call("cached"));
    CHECK_FALSE(lending.call("plain", "key"));
    CHECK_FALSE(lending.submit("plain"));
    CHECK(lending.dispatcher.tasks().list({}).tasks.empty());
    CHECK(lending.call("plain"));
}
