#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "codec/json_source.hpp"
#include "service/function_table.hpp"
#include "tasks/worker_pool.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::service {

/// In which groups of the worker pool a call takes a place: its function's (FunctionTable::Entry), that of its session,
/// and those of the objects that it uses. Thread-safe.
class CallGroups {
public:
    /// `session`: for a stateful function; empty: none.
    tasks::Groups of(const FunctionTable::Entry& function, std::span<const codec::JsonSource::Use> objects,
                     const std::string& session);
    /// Forgets groups that no call is in.
    void tend();

private:
    std::shared_ptr<tasks::Group> of_session(const std::string& session);
    std::shared_ptr<tasks::Group> of_object(const ObjectPointer& object);

    Guarded<std::unordered_map<std::string, std::weak_ptr<tasks::Group>>> sessions_;
    Guarded<std::unordered_map<const void*, std::weak_ptr<tasks::Group>>> objects_;  ///< by the object's address
};

}  // namespace shared_tensor::service
