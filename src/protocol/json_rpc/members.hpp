#pragma once

#include <string>
#include <string_view>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {

/// Returns the text of a member; "" if `value` is no object or has no string of this name.
inline std::string text_member(const Json& value, std::string_view name) {
    const auto found = value.find(name);  // the end if `value` is no object
    return found != value.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace shared_tensor::json_rpc
