#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "json_rpc/error.hpp"

namespace shared_tensor::server {

/// A parameter of a built-in method that is not as it must be; caught where built-ins are called.
class BadParameter : public std::exception {
public:
    explicit BadParameter(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }

private:
    json_rpc::Error error_;
};

/// The parameters of a built-in method, by name or by position in the order of `names`. Every reader throws
/// BadParameter with parameter, expected and got; so does the constructor for unknown and surplus ones.
class BuiltinParams {
public:
    BuiltinParams(const json_rpc::Json& params, std::initializer_list<std::string_view> names);

    const json_rpc::Json* find(std::string_view name) const;  ///< nullptr when absent or null
    std::string text(std::string_view name) const;
    std::optional<std::string> optional_text(std::string_view name) const;
    /// An array of at most `most` strings.
    std::vector<std::string> texts(std::string_view name, std::size_t most) const;
    std::optional<std::int64_t> optional_integer(std::string_view name, std::int64_t least, std::int64_t most) const;
    bool flag(std::string_view name) const;  ///< false when absent
    std::optional<std::chrono::milliseconds> optional_ms(std::string_view name, std::chrono::milliseconds most) const;

private:
    const json_rpc::Json* params_;
    std::vector<std::string_view> names_;
};

}  // namespace shared_tensor::server
