#pragma once

#include <initializer_list>
#include <string_view>

#include "json_rpc/json.hpp"

namespace shared_tensor::server::schema {

// JSON Schemas of results. Where a schema is expected, a text stands for {"type": text}.

/// A member of an object: "name", or "name?" for one that may be left out.
struct Member {
    std::string_view name;
    json_rpc::Json schema;
};
/// An object of at least these members: later versions of the daemon may add some.
json_rpc::Json object(std::initializer_list<Member> members);
json_rpc::Json list_of(json_rpc::Json items);
json_rpc::Json map_of(json_rpc::Json values);
/// Any value.
inline json_rpc::Json any() { return json_rpc::Json::object(); }
/// A tensor in a message, as the document's components describe it.
json_rpc::Json tensor();

/// What these components say of it: {"$tensor": {...}}.
json_rpc::Json tensor_component();

}  // namespace shared_tensor::server::schema
