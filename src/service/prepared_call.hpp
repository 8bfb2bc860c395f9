#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "codec/json_source.hpp"
#include "service/dispatcher.hpp"

namespace shared_tensor::service {

/// A call whose arguments are read and found good, on its way to the queue.
struct Dispatcher::Prepared {
    FunctionTable::EntryPointer function;
    std::unique_ptr<BoundCall> call;
    std::string arguments;  ///< the text of arguments_key(), where a policy needs it
    std::string cache_key;  ///< empty: not cached
    std::chrono::milliseconds timeout;
    std::vector<codec::JsonSource::Use> objects{};
    FaultWatch memory{};  ///< see CallSpec
    std::shared_ptr<codec::LentForCall> lent{};
    bool kept = false;  ///< see Execution::Setup
};

}  // namespace shared_tensor::service
