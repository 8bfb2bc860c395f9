#pragma once

#include <string_view>
#include <variant>

#include <shared_tensor/function.hpp>

#include "protocol/codec/references.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/models/model.hpp"

namespace shared_tensor::test {

/// Calls a method as the dispatcher does: parameters by position, `params` and the result as they stand on the wire.
std::variant<codec::Json, CallFailure> try_call(const models::Model& model, std::string_view method,
                                                const codec::Json& params, std::string_view session = {});
/// The result; a failure fails the test.
codec::Json call(const models::Model& model, std::string_view method, const codec::Json& params,
                 std::string_view session = {});
/// The failure; a result fails the test.
CallFailure failure(const models::Model& model, std::string_view method, const codec::Json& params,
                    std::string_view session = {});

const FunctionRecord& function(const models::Model& model, std::string_view method);
/// The same of a function that one has; `references` finds the objects that `params` name.
std::variant<codec::Json, CallFailure> try_call(const FunctionRecord& function, const codec::Json& params,
                                                std::string_view session = {}, codec::References* references = nullptr);

/// What `make` writes.
template <class Make>
codec::Json written(Make make);

}  // namespace shared_tensor::test

#include "protocol/codec/json_sink.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::test {

template <class Make>
codec::Json written(Make make) {
    tensor::TensorTransfer port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    make(ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

}  // namespace shared_tensor::test
