#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::codec {

/// A reference of a message cannot be resolved. Holds the error for the sender.
class Unresolved final : public std::exception {
public:
    explicit Unresolved(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }
    const char* what() const noexcept override { return error_.message.c_str(); }

private:
    json_rpc::Error error_;
};

/// Resolves the references of one message. One object per message; not thread-safe.
class References {
public:
    virtual ~References() = default;
    /// The value for {"$ref": `name`}, never null. Throws Unresolved.
    virtual std::shared_ptr<const Value> value(const Json& name) = 0;
    /// The object for {"$object": `handle`}, never null. Throws Unresolved.
    virtual ObjectPointer object(const Json& handle) = 0;
};

/// The id in {"item": id}, which refers to an item of a batch; null for other names.
const Json* item_in(const Json& name);

/// Calls `found(name)` for each {"$ref": name} in received parameters. Skips tensors and objects, and plain objects
/// that have such a key.
void for_each_reference(const Json& params, const std::function<void(const Json& name)>& found);

}  // namespace shared_tensor::codec
