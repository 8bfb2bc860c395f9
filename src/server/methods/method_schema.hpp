#pragma once

#include <initializer_list>
#include <string_view>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::server::schema {

// JSON Schemas of results. The functions accept a string `text` in place of the schema {"type": text}.

/// A member of an object: "name", or "name?" if the member is optional.
struct Member {
    std::string_view name;
    json_rpc::Json schema;
};
/// An object with at least these members: later versions of the daemon may add members.
json_rpc::Json object(std::initializer_list<Member> members);
json_rpc::Json list_of(json_rpc::Json items);
json_rpc::Json map_of(json_rpc::Json values);
/// Any value.
inline json_rpc::Json any() { return json_rpc::Json::object(); }
/// A reference to tensor_component().
json_rpc::Json tensor();

/// The schema of a tensor in a message, {"$tensor": {...}}, for the components of the OpenRPC document.
json_rpc::Json tensor_component();

}  // namespace shared_tensor::server::schema
