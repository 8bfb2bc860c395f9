#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <shared_tensor/function.hpp>

#include "protocol/codec/json_sink.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/models/model.hpp"
#include "support/daemon.hpp"
#include "tensor/transports/tensor_transfer.hpp"

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
/// The same of a function that one has.
std::variant<codec::Json, CallFailure> try_call(const FunctionRecord& function, const codec::Json& params,
                                                std::string_view session = {});

/// What `make` writes.
template <class Make>
codec::Json written(Make make) {
    tensor::TensorTransfer port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    make(ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

/// A module with the parameter `weight` (one element, 2.0), the buffer `buffer` and the attributes `last` (tensors of
/// one element, 0), `count` (int, 0) and `seen` (an empty List[int]), whose methods are `source`; saved and loaded.
std::shared_ptr<models::Model> model_of(const std::string& source, models::LoadOptions options = {});

}  // namespace shared_tensor::test
