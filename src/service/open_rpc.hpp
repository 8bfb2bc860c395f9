#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codec/value.hpp"
#include "service/function_table.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::service {

/// The OpenRPC 1.3 document of functions: each with parameter names, JSON Schemas, defaults, documentation and errors.
codec::Json open_rpc_document(const std::vector<FunctionPointer>& functions, const std::string& server_version);

/// That of a table, made anew when its functions have changed. Thread safety: from any thread.
class OpenRpc {
public:
    /// `functions` outlives it.
    OpenRpc(const FunctionTable& functions, std::string server_version)
        : functions_(&functions), server_version_(std::move(server_version)) {}

    struct Document {
        codec::Json json;
        std::string text;
    };
    std::shared_ptr<const Document> document() const;

private:
    struct Made {
        std::uint64_t version = 0;  ///< of the table
        std::shared_ptr<const Document> document;
    };
    const FunctionTable* functions_;
    std::string server_version_;
    mutable Guarded<Made> made_;
};

}  // namespace shared_tensor::service
