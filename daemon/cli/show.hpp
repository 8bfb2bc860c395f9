#pragma once

#include <chrono>
#include <string>

#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// A value for people: a string without quotes, short JSON in one line, tensors with dtype, shape and some elements.
std::string show(const Dynamic& value);

/// "tensor float32 [2, 3]"
std::string tensor_title(const codec::TensorPointer& tensor);

/// JSON for people: one line if it is short, else indented.
std::string show_json(const codec::Json& json);

/// JSON for programs, in one line.
std::string compact(const codec::Json& json);

/// "850 us", "1.2 ms", "3 s", "2 h 5 min"
std::string show_duration(std::chrono::nanoseconds duration);

}  // namespace shared_tensor::cli
