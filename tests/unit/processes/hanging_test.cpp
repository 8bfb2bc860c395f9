// When a worker process whose calls hang is to end.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "processes/present_calls.hpp"
#include "processes/remote_function.hpp"
#include "support/event.hpp"
#include "unit/share/call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

/// An argument whose reading waits.
struct Waited {
    inline static Event *reading = nullptr, *until = nullptr;
};

Json caller(std::int64_t milliseconds_left, bool has_end) {
    return Json::array({"s-1", "", milliseconds_left, has_end, "r-1", "1", "", "info"});
}

/// Calls that go on until the test ends.
class Calls {
public:
    ~Calls() { go.set(); }
    template <class... Options>
    void start(std::size_t count, const Json& passed, const Options&... options) {
        functions_.push_back(processes::make_worker_function(std::shared_ptr<const FunctionRecord>(shared(
            [this] {
                started.set();
                go.wait();
                return 1;
            },
            options...))));
        const auto before = started.count();
        run(*functions_.back(), count, {passed});
        REQUIRE(started.wait(before + count));
    }
    /// Of these the arguments are being read.
    void start_reading(std::size_t count, const Json& passed) {
        Waited::reading = &reading;
        Waited::until = &go;
        functions_.push_back(processes::make_worker_function(
            std::shared_ptr<const FunctionRecord>(shared([](const Waited&) { return 1; }, arg("x")))));
        const auto before = reading.count();
        run(*functions_.back(), count, {Json(1), passed});
        REQUIRE(reading.wait(before + count));
    }

    Event started, reading, go;

private:
    void run(const FunctionRecord& function, std::size_t count, const std::vector<Json>& arguments) {
        for (std::size_t i = 0; i < count; ++i)
            threads_.emplace_back([&function, arguments] { call(function, arguments); });
    }
    std::vector<std::shared_ptr<const FunctionRecord>> functions_;
    std::vector<std::jthread> threads_;
};

}  // namespace

template <>
struct shared_tensor::Codec<Waited> {
    static Waited read(const ValueReader&) {
        Waited::reading->set();
        Waited::until->wait();
        return {};
    }
    static void write(ValueWriter, const Waited&) {}
    static void schema(ValueWriter writer) { writer.object(); }
};

TEST_CASE("a worker process ends when 16 calls go on for 5 s after their end, and none that callers may have joined",
          "[processes]") {
    Calls calls;
    calls.start(16, caller(0, false));
    calls.start(15, caller(0, true));
    const SteadyTime now = real_clock().now() + 1s;  // their end is over
    CHECK(processes::why_to_end(now).empty());
    CHECK(processes::why_to_end(now + 5s).empty());
    calls.start(1, caller(0, true));
    const SteadyTime later = real_clock().now() + 10s;
    CHECK(processes::why_to_end(later).empty());
    CHECK(processes::why_to_end(later + 5s) == "16 of its calls ignored their cancellation for 5 s");
}

TEST_CASE("calls whose arguments are being read count only if none other runs in its time", "[processes]") {
    Calls calls;
    calls.start(1, caller(60'000, true));
    calls.start_reading(16, caller(0, true));
    const SteadyTime now = real_clock().now() + 1s;
    CHECK(processes::why_to_end(now).empty());
    CHECK(processes::why_to_end(now + 10s).empty());
    CHECK_FALSE(processes::why_to_end(now + 70s).empty());
}

TEST_CASE("a worker process ends when all places of a function hang for a minute", "[processes]") {
    Calls calls;
    calls.start(2, caller(0, true), concurrency(2));
    calls.start(2, caller(0, true), concurrency(3));
    const SteadyTime now = real_clock().now() + 1s;
    CHECK(processes::why_to_end(now).empty());
    CHECK(processes::why_to_end(now + 59s).empty());
    CHECK(processes::why_to_end(now + 60s) ==
          "the calls that have all places of test ignored their cancellation for 60 s");
}
