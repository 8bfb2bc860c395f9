#pragma once

// Calls a FunctionRecord the way the dispatcher does: bind all arguments, then run.

#include <optional>
#include <shared_tensor/detail/adapter.hpp>
#include <shared_tensor/function.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "support/fake_tensor.hpp"

namespace shared_tensor::test {

using codec::Json;

class FakeContext final : public Context {
public:
    void progress(double fraction, std::string_view message) override { reports.emplace_back(fraction, message); }
    bool cancelled() const override { return is_cancelled; }
    bool sleep_until(std::chrono::steady_clock::time_point) const override { return !is_cancelled; }
    std::chrono::steady_clock::time_point deadline() const override { return limit; }
    const Caller& caller() const override { return who; }
    void log(LogLevel, std::string_view text) const override { lines.emplace_back(text); }

    std::vector<std::pair<double, std::string>> reports;
    mutable std::vector<std::string> lines;
    bool is_cancelled = false;
    std::chrono::steady_clock::time_point limit = std::chrono::steady_clock::time_point::max();
    Caller who{"uid:7", "s-1", "t-1"};
};

/// The result, or why there is none.
struct Called {
    std::optional<CallFailure> failure;
    Json result;

    bool ok() const { return !failure; }
    /// "parameter: expected ..., got ..."
    std::string rejection() const {
        if (!failure) return "taken: " + result.dump();
        if (failure->kind != CallFailure::Kind::invalid_params)
            return "threw " + failure->type + ": " + failure->message;
        return failure->parameter + ": expected " + failure->expected + ", got " + failure->got;
    }
};

/// `arguments` by position; a missing or discarded one is not given.
inline Called call(const FunctionRecord& function, std::vector<Json> arguments, Context& context) {
    FakePort port;
    Binding binding;
    {
        const codec::JsonSource source(port);
        std::vector<ValueSource::Node> nodes(function.parameters().size(), nullptr);
        for (std::size_t i = 0; i < arguments.size() && i < nodes.size(); ++i) {
            if (!arguments[i].is_discarded()) nodes[i] = codec::JsonSource::node(arguments[i]);
        }
        binding = function.bind(source, nodes);
    }
    arguments.clear();  // a bound call owns what it needs
    if (binding.call == nullptr) return {std::move(binding.failure), {}};
    codec::Value value;
    codec::JsonSink sink(value, port);
    auto failure = binding.call->run(context, ValueWriter(sink, sink.root()));
    return {std::move(failure), codec::encode(value, port)};
}

inline Called call(const FunctionRecord& function, std::vector<Json> arguments = {}) {
    FakeContext context;
    return call(function, std::move(arguments), context);
}

template <class F, class... Options>
std::unique_ptr<FunctionRecord> shared(F callable, const Options&... options) {
    return detail::make_function_record("test", "here:1", std::move(callable), options...);
}

/// Not given: {Json(1), kNone, Json(3)}.
inline const Json kNone = Json(Json::value_t::discarded);

}  // namespace shared_tensor::test
