#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options.hpp"

namespace shared_tensor::daemon {

enum class OptionKind { value, flag, list };

/// One option, the same for flag, environment and file.
struct OptionEntry {
    std::string name;  ///< "call-timeout": --call-timeout, SHARED_TENSOR_CALL_TIMEOUT, "call-timeout" in the file
    OptionKind kind;
    std::string group, help;
    std::function<void(DaemonOptions&, const std::string&)> set;  ///< throws std::invalid_argument; a list: adds one
    std::function<nlohmann::json(const DaemonOptions&)> show;
    std::function<void(DaemonOptions&)> clear;  ///< of a list: a stronger source replaces a weaker one
};

const std::vector<OptionEntry>& option_table();

}  // namespace shared_tensor::daemon
