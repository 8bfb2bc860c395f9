#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include <shared_tensor/function.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/models/model.hpp"
#include "support/daemon.hpp"
#include "tensor/transports/tensor_transfer.hpp"
#include "torch/load_model.hpp"

namespace shared_tensor::test {

class TestContext final : public Context {
public:
    explicit TestContext(std::string_view session) { caller_.session = session; }
    void progress(double, std::string_view) override {}
    bool cancelled() const override { return false; }
    bool sleep_until(std::chrono::steady_clock::time_point) const override { return true; }
    std::chrono::steady_clock::time_point deadline() const override {
        return std::chrono::steady_clock::time_point::max();
    }
    const Caller& caller() const override { return caller_; }
    void log(LogLevel, std::string_view) const override {}

private:
    Caller caller_;
};

/// What `make` writes.
template <class Make>
codec::Json written(Make make) {
    tensor::TensorTransfer port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    make(ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

/// Calls a function as the dispatcher does: parameters by position, `params` and the result as they stand on the wire.
/// `before_sending` runs between the function and the writing of its result.
inline std::variant<codec::Json, CallFailure> try_call(const FunctionRecord& shared, const codec::Json& params,
                                                       std::string_view session = {},
                                                       const std::function<void()>& before_sending = {}) {
    tensor::TensorTransfer port;
    const codec::JsonSource source(port);
    std::vector<ValueSource::Node> nodes(shared.parameters().size(), nullptr);
    for (std::size_t i = 0; i < params.size(); ++i)
        nodes.at(i) = codec::JsonSource::node(params[i]);
    const Binding binding = shared.bind(source, nodes);
    if (binding.failure) return *binding.failure;
    TestContext context(session);
    std::optional<CallFailure> failed;
    codec::Json result = written([&](ValueWriter writer) {
        failed = binding.call->run(context, writer);
        if (before_sending) before_sending();
    });
    if (failed) return *failed;
    return result;
}

inline const FunctionRecord& function(const models::Model& model, std::string_view method) {
    for (const auto& each : model.functions()) {
        if (each->name().ends_with("." + std::string(method))) return *each;
    }
    throw std::out_of_range("no method " + std::string(method));
}

/// The result; a failure fails the test.
inline codec::Json call(const models::Model& model, std::string_view method,
                        const codec::Json& params = codec::Json::array(), std::string_view session = {}) {
    auto outcome = try_call(function(model, method), params, session);
    if (const auto* failed = std::get_if<CallFailure>(&outcome))
        FAIL(failed->type << ": " << failed->message << failed->expected);
    return std::get<codec::Json>(std::move(outcome));
}

/// The failure; a result fails the test.
inline CallFailure failure(const models::Model& model, std::string_view method,
                           const codec::Json& params = codec::Json::array(), std::string_view session = {}) {
    auto outcome = try_call(function(model, method), params, session);
    if (const auto* result = std::get_if<codec::Json>(&outcome)) FAIL("a result: " << *result);
    return std::get<CallFailure>(std::move(outcome));
}

/// A module with the parameter `weight` (one element, 2.0), the buffer `buffer` and the attributes `last` (tensors of
/// one element, 0), `count` (int, 0) and `seen` (an empty List[int]), whose methods are `source`; saved and loaded.
inline std::shared_ptr<models::Model> model_of(const std::string& source, const models::LoadOptions& options = {}) {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({1}, 2.0), false);
    module.register_buffer("buffer", at::zeros({1}));
    module.register_attribute("last", c10::TensorType::get(), at::zeros({1}));
    module.register_attribute("count", c10::IntType::get(), 0);
    module.register_attribute("seen", c10::ListType::ofInts(), c10::List<std::int64_t>());
    module.define(source);
    const TemporaryFolder folder;
    module.save(folder.file("m.pt"));
    return models::load_model("m", folder.file("m.pt"), options);
}

}  // namespace shared_tensor::test
