#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/functions/function_table.hpp"

namespace shared_tensor::runtime {

/// Returns the JSON Schema that `write` writes, such as a Codec's schema().
codec::Json written_schema(const std::function<void(ValueWriter)>& write);

/// The OpenRPC 1.3 document of a server: the functions, each with parameter names, JSON Schemas, defaults,
/// documentation and errors, then the server's own methods. Made again when the functions have changed. Thread safety:
/// document() from any thread.
class OpenRpc {
public:
    /// `functions` must outlive it. `schemas` by name: "Tensor".
    OpenRpc(const FunctionTable& functions, std::string server_version, codec::Json schemas = codec::Json::object())
        : functions_(&functions), server_version_(std::move(server_version)), schemas_(std::move(schemas)) {}

    struct Document {
        codec::Json json;
        std::string text;
    };
    /// Sets the server's own methods. Call it before the first document().
    void set_methods(codec::Json methods) { methods_ = std::move(methods); }
    std::shared_ptr<const Document> document() const;

private:
    struct Made {
        std::uint64_t version = 0;  ///< of the table
        std::shared_ptr<const Document> document;
    };
    const FunctionTable* functions_;
    std::string server_version_;
    codec::Json schemas_, methods_ = codec::Json::array();
    mutable Guarded<Made> made_;
};

}  // namespace shared_tensor::runtime
