// What a shared function throws never leaves the call: it becomes a CallFailure.

#include <catch2/catch_test_macros.hpp>
#include <new>
#include <stdexcept>
#include <string>

#include <shared_tensor/struct.hpp>
#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Failure = CallFailure::Kind;

namespace failures_test {

struct OwnError : std::runtime_error {
    using runtime_error::runtime_error;
};
struct NoException {};
struct Hungry {};
enum class Known { one };
SHARED_TENSOR_ENUM(Known, one);

struct Unreadable {};

template <class F>
CallFailure failure_of(F function) {
    const auto outcome = call(*shared(std::move(function)));
    REQUIRE(outcome.failure);
    return *outcome.failure;
}

}  // namespace failures_test
using namespace failures_test;

template <>
struct shared_tensor::Codec<Hungry> {
    static Hungry read(const ValueReader&) { throw std::bad_alloc(); }
    static void write(ValueWriter, const Hungry&) {}
    static void schema(ValueWriter) {}
};

template <>
struct shared_tensor::Codec<Unreadable> {
    static Unreadable read(const ValueReader&) { throw std::domain_error("cannot be read"); }
    static void write(ValueWriter, const Unreadable&) {}
    static void schema(ValueWriter) {}
};

TEST_CASE("an exception becomes its type and text", "[share][failures]") {
    const auto failure = failure_of([] { throw std::out_of_range("too far"); });
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.type == "std::out_of_range");
    CHECK(failure.message == "too far");
}

TEST_CASE("a long text is cut at a character, with a remark", "[share][failures]") {
    CHECK(failure_of([] { throw std::runtime_error(std::string(4096, 'x')); }).message == std::string(4096, 'x'));
    std::string text;
    while (text.size() < 10'000)
        text += "\u00fc";
    const auto failure = failure_of([&] { throw std::runtime_error(text); });
    CHECK(failure.message.size() <= 4096);
    CHECK(failure.message.ends_with("\u00fc ... (cut: the text has 10000 bytes)"));
}

TEST_CASE("an exception without a text is no lack of memory", "[share][failures]") {
    struct NoText : std::exception {
        const char* what() const noexcept override { return nullptr; }
    };
    const auto failure = failure_of([] { throw NoText(); });
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.message == "the exception has no text: its what() is null");
}

TEST_CASE("what libtorch appends to its messages is kept apart, for the log", "[share][failures]") {
    const std::string stack = "\nException raised from f at g.cpp:1 (most recent call first):\nframe #0: f";
    const std::string kernels =
        "\n\nCPU: registered at RegisterCPU.cpp:1 [kernel]\nBackendSelect: fallthrough registered at x:3";
    for (const std::string& appended : {stack, kernels, std::string("\nC++ CapturedTraceback:\n#4 f")}) {
        const auto failure = failure_of([&] { throw std::runtime_error("it failed\nbecause" + appended); });
        CHECK(failure.message == "it failed\nbecause");
        CHECK(failure.details == appended);
    }
    CHECK(failure_of([] { throw std::runtime_error("he registered at noon"); }).details.empty());
}

TEST_CASE("the type is the one that was thrown, not the one that was caught", "[share][failures]") {
    CHECK(failure_of([] { throw OwnError("mine"); }).type == "failures_test::OwnError");
}

TEST_CASE("what is no exception becomes its type", "[share][failures]") {
    const auto number = failure_of([] { throw 7; });
    CHECK(number.kind == Failure::threw);
    CHECK(number.type == "int");
    CHECK(number.message == "not a std::exception");
    CHECK(failure_of([] { throw "text"; }).type == "char const*");
    CHECK(failure_of([] { throw NoException(); }).type == "failures_test::NoException");
}

TEST_CASE("running out of memory has a kind of its own", "[share][failures]") {
    CHECK(failure_of([] { throw std::bad_alloc(); }).kind == Failure::out_of_memory);
    CHECK(failure_of([] { throw std::bad_array_new_length(); }).kind == Failure::out_of_memory);
}

TEST_CASE("ending early after a cancellation is a cancellation", "[share][failures]") {
    FakeContext context;
    context.is_cancelled = true;
    const auto function = shared([](Context& own) { own.check_cancelled(); });
    CHECK(call(*function, {}, context).failure->kind == Failure::cancelled);
    context.is_cancelled = false;
    CHECK(call(*function, {}, context).ok());
}

TEST_CASE("an invalid value inside the function or its result is the function's failure, not the caller's",
          "[share][failures]") {
    const auto failure = failure_of([] { throw InvalidValue("a[1]", "number", "null"); });
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.type == "shared_tensor::InvalidValue");
    CHECK(failure.message == "a[1]: expected number, got null");
    CHECK(failure.parameter.empty());
}

TEST_CASE("a result that cannot be written is the function's failure", "[share][failures]") {
    const auto failure = failure_of([] { return static_cast<Known>(4); });
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.type == "std::invalid_argument");
}

TEST_CASE("a codec that throws while reading fails the binding", "[share][failures]") {
    const auto outcome = call(*shared([](const Unreadable&) {}), {1});
    REQUIRE(outcome.failure);
    CHECK(outcome.failure->kind == Failure::threw);
    CHECK(outcome.failure->type == "std::domain_error");
    CHECK(outcome.failure->message == "cannot be read");
}

TEST_CASE("memory that runs out while arguments are read fails the binding", "[share][failures]") {
    const auto outcome = call(*shared([](const Hungry&) {}), {1});
    REQUIRE(outcome.failure);
    CHECK(outcome.failure->kind == Failure::out_of_memory);
}

TEST_CASE("a bound call that never runs frees its arguments", "[share][failures]") {
    FakePort port;
    const codec::JsonSource source(port);
    const Json json = std::string(1000, 'x');  // the leak checker looks
    const ValueSource::Node nodes[] = {codec::JsonSource::node(json)};
    const auto function = shared([](std::string) {});
    CHECK(function->bind(source, nodes).call != nullptr);
}
