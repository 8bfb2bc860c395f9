#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/functions/function_table.hpp"

namespace shared_tensor::runtime {

/// The parts of the document that do not come from functions.
struct ServerParts {
    codec::Json methods = codec::Json::array();   ///< of the server itself
    codec::Json schemas = codec::Json::object();  ///< by name: "Tensor"
};

/// Returns the JSON Schema that a Codec's schema() writes.
codec::Json written_schema(void (*write)(ValueWriter));

/// Returns the OpenRPC 1.3 document: the functions, each with parameter names, JSON Schemas, defaults, documentation
/// and errors, then the server's own methods.
codec::Json open_rpc_document(const std::vector<FunctionPointer>& functions, const std::string& server_version,
                              const ServerParts& server = {});

/// The OpenRPC document of a FunctionTable, made again when the functions have changed. Thread safety: document() from
/// any thread.
class OpenRpc {
public:
    /// `functions` must outlive it.
    OpenRpc(const FunctionTable& functions, std::string server_version, ServerParts server = {})
        : functions_(&functions), server_version_(std::move(server_version)), server_(std::move(server)) {}

    struct Document {
        codec::Json json;
        std::string text;
    };
    /// Call it before the first document().
    void set_methods(codec::Json methods) { server_.methods = std::move(methods); }
    std::shared_ptr<const Document> document() const;

private:
    struct Made {
        std::uint64_t version = 0;  ///< of the table
        std::shared_ptr<const Document> document;
    };
    const FunctionTable* functions_;
    std::string server_version_;
    ServerParts server_;
    mutable Guarded<Made> made_;
};

}  // namespace shared_tensor::runtime
