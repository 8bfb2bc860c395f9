#pragma once

#include <string>
#include <string_view>

#include "protocol/json_rpc/json.hpp"

namespace shared_tensor::json_rpc {

using Members = Json::object_t;

/// The value of a member, or null if there is no such member.
inline const Json* find_member(const Members& members, std::string_view name) {
    const auto member = members.find(name);
    return member == members.end() ? nullptr : &member->second;
}

/// Whether the member "jsonrpc" is "2.0".
inline bool says_version_2(const Members& members) {
    const Json* version = find_member(members, "jsonrpc");
    const auto* text = version ? version->get_ptr<const std::string*>() : nullptr;
    return text && *text == "2.0";
}

}  // namespace shared_tensor::json_rpc
