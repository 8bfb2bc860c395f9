#pragma once

#include <optional>
#include <string>
#include <variant>

#include "json_rpc/error.hpp"
#include "json_rpc/json.hpp"

namespace shared_tensor::json_rpc {

/// One call or notification. A value: owns everything, refers to nothing of the text it was read from.
struct Request {
    std::string method;
    Json params;             ///< array, object, or null when the member is absent
    std::optional<Json> id;  ///< string, number or null, as it came; without one it is a notification
    Json meta;               ///< the extra member "meta": an object, or null when absent

    bool is_notification() const { return !id.has_value(); }
};

/// The answer to one request. A value.
struct Response {
    Json id;                            ///< the request's; null where it could not be read
    std::variant<Json, Error> outcome;  ///< result or error

    const Json* result() const { return std::get_if<Json>(&outcome); }
    const Error* error() const { return std::get_if<Error>(&outcome); }
};

/// Whether a value may be an id: string, number or null. Any other is refused, never echoed.
inline bool is_valid_id(const Json& id) { return id.is_string() || id.is_number() || id.is_null(); }

}  // namespace shared_tensor::json_rpc
