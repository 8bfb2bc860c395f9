#pragma once

// Converts values of a C++ type to JSON and back, like the arguments and results of a shared function.

#include <optional>
#include <shared_tensor/codecs.hpp>
#include <string>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "support/fake_tensor.hpp"

namespace shared_tensor::test {

using codec::Json;

/// Reads a value of type T from JSON. Throws InvalidValue.
template <class T>
T read(const Json& json) {
    FakePort port;
    const codec::JsonSource source(port);
    return Codec<T>::read(ValueReader(source, codec::JsonSource::node(json)));
}

template <class Write>
Json written_by(Write write) {
    FakePort port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    write(ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

template <class T>
Json write(const T& value) {
    return written_by([&](ValueWriter writer) { Codec<T>::write(writer, value); });
}

template <class T>
Json schema() {
    return written_by([](ValueWriter writer) { Codec<T>::schema(writer); });
}

/// Returns the error text of read<T>(), "path: expected ..., got ..."; "taken" if it throws no InvalidValue.
template <class T>
std::string rejection(const Json& json) {
    try {
        read<T>(json);
    } catch (const InvalidValue& error) {
        return error.what();
    }
    return "taken";
}

}  // namespace shared_tensor::test
