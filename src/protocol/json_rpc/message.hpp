#pragma once

#include <optional>
#include <string>
#include <variant>

#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json.hpp"

namespace shared_tensor::json_rpc {

/// A call or a notification. A value: it owns all its data and does not refer to the parsed text.
struct Request {
    std::string method;
    Json params;             ///< array, object, or null when the member is absent
    std::optional<Json> id;  ///< string, number or null, unchanged; a request without an id is a notification
    Json meta;               ///< the extra member "meta": an object, or null when absent

    bool is_notification() const { return !id.has_value(); }
};

/// The response to one request. A value.
struct Response {
    Json id;                            ///< the id of the request; null if it could not be read
    std::variant<Json, Error> outcome;  ///< result or error

    const Json* result() const { return std::get_if<Json>(&outcome); }
    const Error* error() const { return std::get_if<Error>(&outcome); }
};

/// Whether a value may be an id: string, number or null. Other ids are rejected and never echoed.
inline bool is_valid_id(const Json& id) { return id.is_string() || id.is_number() || id.is_null(); }

}  // namespace shared_tensor::json_rpc
