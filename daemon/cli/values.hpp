#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"
#include "tensor/any_value.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::cli {

/// A value of any shape; tensors may be anywhere inside.
using Dynamic = tensor::AnyValue;

/// Reads a value in the JSON form of the protocol: {"$tensor": {"data": [1, 2]}} is a tensor. Throws InvalidValue.
Dynamic from_json(const codec::Json& json);

/// Writes a value in the JSON form of the protocol, for programs, with tensors as data or base64.
codec::Json to_json(const Dynamic& value);

Dynamic from_tensor(codec::TensorPointer tensor);

/// The tensor if the value is one tensor, else null.
codec::TensorPointer only_tensor(const Dynamic& value);

/// The tensors by name if the value is an object that holds only tensors; a single tensor gets the name "tensor".
std::optional<tensor::TensorMap> tensors_of(const Dynamic& value);

/// The arguments of a call, parsed from words of the command line.
class TypedArguments final : public CallArguments {
public:
    /// Either all words are values, or all are name=value. Reads the files that they name. Throws UsageError.
    explicit TypedArguments(const std::vector<std::string>& words);

    bool empty() const override { return values_.empty(); }
    void write(ValueWriter params) const override;

private:
    std::vector<std::pair<std::string, Dynamic>> values_;  // names are empty for arguments by position
    bool by_name_ = false;
};

/// Parses "3", "[1, 2]", "word", "@file.npy", "@file.json" or "@-". Throws UsageError.
Dynamic read_value(const std::string& word);

/// A value for people: a string without quotes, short JSON in one line, tensors with dtype, shape and some elements.
std::string show(const Dynamic& value);

/// "tensor float32 [2, 3]"
std::string tensor_title(const codec::TensorPointer& tensor);

/// JSON for people: one line if it is short, else indented.
std::string show_json(const codec::Json& json);

/// JSON for programs, in one line.
std::string compact(const codec::Json& json);

/// A member of an object: a string without quotes, other JSON in one line; empty if it is missing.
std::string text_in(const codec::Json& object, const char* member);

/// `text` with a blank for each control character, which could control the terminal: the text comes from others.
std::string printable(std::string_view text);

/// "12 B", "3.4 KiB", "120 MiB"
std::string show_bytes(std::uint64_t bytes);

/// "850 us", "1.2 ms", "3 s", "2 h 5 min"
std::string show_duration(std::chrono::nanoseconds duration);

}  // namespace shared_tensor::cli
