#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/concurrency/guarded.hpp"
#include "protocol/codec/json_source.hpp"
#include "runtime/functions/function_table.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::runtime {

/// Finds the groups of the worker pool in which a call takes places: the group of its function (FunctionTable::Entry),
/// of its session, and of each object that it uses. Thread-safe.
class CallGroups {
public:
    /// `session` is used only for a stateful function; empty: none.
    tasks::Groups of(const FunctionTable::Entry& function, std::span<const codec::JsonSource::Use> objects,
                     const std::string& session);
    /// Maintenance: forgets groups without calls.
    void sweep();

private:
    std::shared_ptr<tasks::Group> of_session(const std::string& session);
    std::shared_ptr<tasks::Group> of_object(const ObjectPointer& object);

    Guarded<std::unordered_map<std::string, std::weak_ptr<tasks::Group>>> sessions_;
    Guarded<std::unordered_map<const void*, std::weak_ptr<tasks::Group>>> objects_;  ///< by the object's address
};

}  // namespace shared_tensor::runtime
