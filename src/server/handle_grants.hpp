#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions.hpp"
#include "service/object_table.hpp"

namespace shared_tensor::server {

/// The reader of an answer may not have a further handle.
class TooManyHandles : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The handles that one answer gives to its reader. One thread at a time.
class HandleGrants {
public:
    HandleGrants(service::ObjectTable& objects, Sessions& sessions, service::HandleOwner owner)
        : objects_(&objects), sessions_(&sessions), owner_(std::move(owner)) {}

    /// What stands behind "$object" in the answer. Throws TooManyHandles.
    codec::Json describe(const ObjectPointer& object);
    /// The answer does not go out: nobody will know of them.
    void take_back();

private:
    service::ObjectTable* objects_;
    Sessions* sessions_;
    service::HandleOwner owner_;
    std::vector<std::string> granted_;
};

}  // namespace shared_tensor::server
