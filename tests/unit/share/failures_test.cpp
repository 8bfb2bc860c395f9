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
struct NoText : std::exception {
    const char* what() const noexcept override { return nullptr; }
};
struct NoException {};
enum class Known { one };
SHARED_TENSOR_ENUM(Known, one);

/// Cannot be read: Error is thrown.
template <class Error>
struct Unreadable {};

}  // namespace failures_test
using namespace failures_test;

namespace c10 {

/// Has the name of libtorch's exception.
struct Error : std::runtime_error {
    using runtime_error::runtime_error;
};

}  // namespace c10

template <class Error>
struct shared_tensor::Codec<Unreadable<Error>> {
    static Unreadable<Error> read(const ValueReader&) { throw Error(); }
    static void write(ValueWriter, const Unreadable<Error>&) {}
    static void schema(ValueWriter) {}
};

namespace {

template <class F>
CallFailure failure_of(F function, std::vector<Json> arguments = {}) {
    return call(*shared(std::move(function)), std::move(arguments)).failure.value();
}

/// "type: message" of what the function threw.
template <class F>
std::string thrown(F function) {
    const auto failure = failure_of(std::move(function));
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.parameter.empty());
    return failure.type + ": " + failure.message;
}

}  // namespace

TEST_CASE("what is thrown becomes its own type, and its text if it is an exception", "[share][failures]") {
    CHECK(thrown([] { throw std::out_of_range("too far"); }) == "std::out_of_range: too far");
    CHECK(thrown([] { throw OwnError("mine"); }) == "failures_test::OwnError: mine");
    CHECK(thrown([] { throw NoText(); }) == "failures_test::NoText: the exception has no text: its what() is null");
    CHECK(thrown([] { throw 7; }) == "int: not a std::exception");
    CHECK(thrown([] { throw "text"; }).starts_with("char const*: "));
    CHECK(thrown([] { throw NoException(); }).starts_with("failures_test::NoException: "));
    // The failures of the function, not of its caller:
    CHECK(thrown([] { throw InvalidValue("a[1]", "number", "null"); }) ==
          "shared_tensor::InvalidValue: a[1]: expected number, got null");
    CHECK(thrown([] { return static_cast<Known>(4); }).starts_with("std::invalid_argument: "));
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

TEST_CASE("of the text of libtorch's own exceptions the caller gets the first line, and the log all others",
          "[share][failures]") {
    const std::string rest = "\nadvice\nException raised from f\nframe #0: " + std::string(20'000, 'x');
    const auto failure = failure_of([&] { throw c10::Error("it failed" + rest); });
    CHECK(failure.type == "c10::Error");
    CHECK(failure.message == "it failed");
    CHECK(failure.details == rest);
    const auto empty_line = failure_of([] { throw c10::Error("\nit failed\nadvice"); });
    CHECK(empty_line.message == "it failed");
    const auto endless = failure_of([] { throw c10::Error("it failed\n" + std::string(200'000, 'x')); });
    CHECK(endless.details.size() <= detail::kMaxErrorDetails);
}

TEST_CASE("running out of memory has a kind of its own, and what is thrown while arguments are read fails the binding",
          "[share][failures]") {
    CHECK(failure_of([] { throw std::bad_alloc(); }).kind == Failure::out_of_memory);
    CHECK(failure_of([] { throw std::bad_array_new_length(); }).kind == Failure::out_of_memory);
    CHECK(failure_of([](const Unreadable<std::bad_alloc>&) {}, {1}).kind == Failure::out_of_memory);
    const auto failure = failure_of([](const Unreadable<NoText>&) {}, {1});
    CHECK(failure.kind == Failure::threw);
    CHECK(failure.type == "failures_test::NoText");
}

TEST_CASE("ending early after a cancellation is a cancellation", "[share][failures]") {
    FakeContext context;
    const auto function = shared([](Context& own) { own.check_cancelled(); });
    CHECK(call(*function, {}, context).ok());
    context.is_cancelled = true;
    CHECK(call(*function, {}, context).failure->kind == Failure::cancelled);
}

TEST_CASE("a bound call that never runs frees its arguments", "[share][failures]") {
    FakePort port;
    const codec::JsonSource source(port);
    const Json json = std::string(1000, 'x');  // the leak checker looks
    const ValueSource::Node nodes[] = {codec::JsonSource::node(json)};
    const auto function = shared([](std::string) {});
    CHECK(function->bind(source, nodes).call != nullptr);
}
