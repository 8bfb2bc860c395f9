#pragma once

// at::Tensor as a parameter, result, or anything inside them. No torch header here: include
// <ATen/core/Tensor.h> (1.5 s) or what you need before you share a function that takes tensors.
//
// A tensor parameter may view memory that the call owns (the received bytes); keep a copy of the at::Tensor as long as
// you like: it keeps that memory alive. Results are taken by reference count, without a copy.

#include <shared_tensor/object.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// The server's own tensor of which `result` is this client's view, as an argument: nothing is exported on the way, and
/// what was written to `result` here does not count. Keep `result` until the call is over.
///
///     const auto weights = client.call<at::Tensor>("weights");
///     client.call<at::Tensor>("scale", ref(weights), 2.0);
///
/// Throws std::invalid_argument for any other tensor: views of it, copies, results that came as bytes (another host).
NamedReference ref(const at::Tensor& result);

template <class T>
requires std::same_as<T, at::Tensor>
struct Codec<T> {
    static T read(const ValueReader& reader) {
        reader.require(Kind::tensor, "tensor");
        return reader.tensor();
    }
    static void write(ValueWriter writer, const T& value) { writer.tensor(value); }
    static void schema(ValueWriter writer) {
        writer.object();
        writer.member("$ref").string("#/components/schemas/Tensor");
    }
};

}  // namespace shared_tensor
