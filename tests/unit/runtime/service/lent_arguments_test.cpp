// When arguments in the caller's memory become the server's own, and how tensors and streams of calls are kept.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <new>

#include <shared_tensor/stream.hpp>

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
    LentTensor(std::shared_ptr<Lent> memory, bool is_large) : memory_(std::move(memory)), is_large_(is_large) {}
    const TensorRef& tensor() const override { return tensor_; }
    std::uint64_t bytes() const override { return memory_->bytes(); }
    bool on_device() const override { return false; }
    /// What the sender could still change stands for other bytes than what it cannot.
    bool append_key(std::string& key) const override {
        if (!is_large_) key += memory_->taken ? "taken" : "lent";
        return !is_large_;
    }
    void append_digest(std::string& key) const override { key += "digest"; }

private:
    const std::shared_ptr<Lent> memory_;
    const bool is_large_;
    static inline std::uint8_t element = 0;
    const TensorRef tensor_{&element, DType::uint8, {1}, {}, {}, memory_};
};

class LendingPort final : public codec::TensorPort {
public:
    codec::TensorPointer import(const codec::Json&) override {
        const auto memory = std::make_shared<Lent>(taken);
        lent_.emplace_back(memory);
        return std::make_shared<LentTensor>(memory, is_large);
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
    bool is_full = false, is_large = false;

private:
    std::vector<std::weak_ptr<codec::LentMemory>> lent_;
};

TensorRef kept_by_function;

struct Lending {
    static Registry registry() {
        Registry functions;
        functions.add("plain", [](const TensorRef&) { return 1; });
        functions.add("keeps", [](const TensorRef& tensor) { kept_by_function = tensor; });
        functions.add(
            "cached", [](const TensorRef&) { return 1; }, cached(1h));
        functions.add("stream", [](const TensorRef&, Writer<int>) {});
        return functions;
    }
    static runtime::DispatcherOptions options() {
        runtime::DispatcherOptions options = workers(1);
        options.max_streams = 1;
        return options;
    }
    runtime::CallSpec spec(std::string_view method) {
        return {method, arguments, {"uid:1", {}, {}}, std::nullopt, {}, port};
    }
    /// Whether it was taken; its worker is done with it when this returns.
    bool call(const runtime::CallSpec& spec) {
        const std::uint64_t before = dispatcher.pool().stats().finished;
        auto started = dispatcher.call(spec);
        if (std::holds_alternative<json_rpc::Error>(started)) return false;
        const auto& waiter = std::get<runtime::StartedCall>(started).waiter;
        if (waiter->wait_until(patience()) == nullptr) return false;
        const bool ran = waiter->execution()->compute_time() > 0ns;
        return !ran || eventually([&] { return dispatcher.pool().stats().finished > before; });
    }
    bool call(std::string_view method, std::string key = {}) {
        auto call_spec = spec(method);
        call_spec.idempotency_key = std::move(key);
        return call(call_spec);
    }
    bool submit(std::string_view method) {
        return std::holds_alternative<std::optional<tasks::TaskInfo>>(dispatcher.submit(spec(method), {}));
    }

    const Json arguments = Json::array({Json{{"$tensor", Json::object()}}});
    LendingPort port;
    ManualClock clock;
    runtime::Dispatcher dispatcher{registry(), options(), clock};
};

}  // namespace

TEST_CASE("a plain call reads its arguments where they were lent, and what its function keeps becomes the server's own",
          "[service][lent]") {
    Lending lending;
    CHECK(lending.call("plain"));
    CHECK_FALSE(lending.port.taken);
    CHECK(lending.call("keeps"));
    CHECK(lending.port.taken);
    kept_by_function = {};
}

TEST_CASE("arguments of what may outlive its request are the server's own before it is taken", "[service][lent]") {
    Lending lending;
    SECTION("a task") { CHECK(lending.submit("plain")); }
    SECTION("a notification") {
        auto spec = lending.spec("plain");
        spec.is_notification = true;
        CHECK(lending.call(spec));
    }
    SECTION("a call with an idempotency key") { CHECK(lending.call("plain", "key")); }
    SECTION("a call that may be cached") { CHECK(lending.call("cached")); }
    CHECK(lending.port.taken);
    CHECK(lending.port.copied == 8);
}

TEST_CASE("a cached result is known by the bytes that its function read, and none of large tensors is cached",
          "[service][lent]") {
    Lending lending;
    lending.port.is_large = true;
    CHECK(lending.call("cached"));
    CHECK(lending.dispatcher.cache().stats().entries == 0);
    lending.port.is_large = false;
    CHECK(lending.call("cached"));
    CHECK(lending.dispatcher.cache().stats().misses == 1);
    CHECK(lending.dispatcher.cache().stats().entries == 1);
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

TEST_CASE("streams are counted until they end, and one that is late reads no more of what its client writes",
          "[service][lent]") {
    Lending lending;
    auto spec = lending.spec("stream");
    spec.timeout = 100ms;
    const auto open = [&] { return lending.dispatcher.open_stream(spec, nullptr, [] {}); };
    for (int i = 0; i < 2; ++i) {
        auto run = open();
        REQUIRE(std::holds_alternative<runtime::StreamRun>(run));
        CHECK(lending.dispatcher.running_streams() == 1);
        CHECK(std::holds_alternative<json_rpc::Error>(open()));
        lending.clock.advance(99ms);
        lending.dispatcher.sweep();
        CHECK(lending.port.taken == (i > 0));
        lending.clock.advance(1ms);
        lending.dispatcher.sweep();
        CHECK(lending.port.taken);
        CHECK(code_of(std::get<runtime::StreamRun>(run).execution()->outcome()) == -32002);
    }
    CHECK(lending.dispatcher.running_streams() == 0);
}
