#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {

/// Receives nlohmann's SAX events and builds the value by moves, refusing what the library would let pass.
/// A handler that returns false ends the parse; error() then says why.
class JsonBuilder {
public:
    explicit JsonBuilder(std::size_t max_depth) : max_depth_(max_depth) {}

    bool null() { return put(nullptr); }
    bool boolean(bool value) { return put(value); }
    bool number_integer(Json::number_integer_t value) { return put(value); }
    bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
    bool number_float(Json::number_float_t value, const std::string& literal);
    bool string(std::string& value) { return put(std::move(value)); }
    bool binary(Json::binary_t& value) { return put(std::move(value)); }
    bool start_object(std::size_t size);
    bool key(std::string& key);
    bool end_object() { return close(); }
    bool start_array(std::size_t size);
    bool end_array() { return close(); }
    bool parse_error(std::size_t offset, const std::string& token, const Json::exception& cause);

    const std::optional<JsonTextError>& error() const { return error_; }
    Json take() { return std::move(root_); }

private:
    template <class Value>
    bool put(Value&& value) {
        place(Json(std::forward<Value>(value)));
        return true;
    }
    Json& place(Json value);
    bool open(Json::value_t type);
    bool close();
    bool refuse(JsonFault fault, std::string detail);

    const std::size_t max_depth_;
    Json root_;
    std::vector<Json*> open_;  // the containers around the next value, outermost first
    Json* member_ = nullptr;   // the member whose key came last
    std::optional<JsonTextError> error_;
};

}  // namespace shared_tensor::json_rpc
