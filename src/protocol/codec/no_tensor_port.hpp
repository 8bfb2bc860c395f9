#pragma once

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/long_text.hpp"

namespace shared_tensor::codec {

/// For values that hold no tensors: one that is to be read does not fit, and one that is written becomes null.
class NoTensorPort final : public TensorPort {
public:
    TensorPointer import(const Json&) override { throw InvalidValue({}, "a value without tensors", "a tensor"); }
    TensorPointer wrap(const TensorRef&) override { return nullptr; }
    void describe(const TensorPointer&, json_rpc::LongText& out) override { out += "null"; }
};

}  // namespace shared_tensor::codec
