#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "codec/value.hpp"
#include "json_rpc/error.hpp"

namespace shared_tensor::codec {

/// What a message names cannot be had, with the error that its sender gets.
class Unresolved final : public std::exception {
public:
    explicit Unresolved(json_rpc::Error error) : error_(std::move(error)) {}
    const json_rpc::Error& error() const { return error_; }
    const char* what() const noexcept override { return error_.message.c_str(); }

private:
    json_rpc::Error error_;
};

/// What a message names without bringing it. One object per message, one thread at a time.
class References {
public:
    virtual ~References() = default;
    /// The value that stands for {"$ref": `name`}, never null. Throws Unresolved.
    virtual std::shared_ptr<const Value> value(const Json& name) = 0;
    /// The object of {"$object": `handle`}, never null. Throws Unresolved.
    virtual ObjectPointer object(const Json& handle) = 0;
};

/// The id in {"item": id}, which names an item of a batch; null for other names.
const Json* item_in(const Json& name);

/// `found(name)` for each {"$ref": name} among parameters as they came: not inside what is a tensor or an object, nor
/// for a plain object that has such a key.
void for_each_reference(const Json& params, const std::function<void(const Json& name)>& found);

}  // namespace shared_tensor::codec
