#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "net/message/fields.hpp"
#include "net/message/message.hpp"
#include "net/server/server.hpp"
#include "runtime/tables/upload_table.hpp"
#include "server/auth/principal.hpp"
#include "server/services.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor::server {

/// A parsed request about an upload.
struct UploadRequest {
    runtime::UploadTable::Key key;
    runtime::UploadTable::Payer payer{};
    std::optional<tensor::FileForm> file_form;  ///< none: neither the name nor Content-Type names one
    std::optional<std::uint64_t> if_version;
    runtime::UploadForm form;
    net::ByteRange part;
    bool is_whole = false;
    tensor::RawForm raw;
};

/// Whether HEAD or DELETE is about an upload and not about the tensor. False if the query is invalid.
bool is_about_upload(const net::RequestHead& head);

/// Parses the path and the query of a request. The path must begin with TensorEndpoint::kPrefix. Throws Rejected if one
/// of them is invalid.
UploadRequest parse_upload_request(const net::RequestHead& head, const Principal& principal);

/// Parses the whole head of a PUT whose body has `bytes` bytes. Throws Rejected if it is invalid.
UploadRequest parse_put(const net::RequestHead& head, const Principal& principal, std::uint64_t bytes);

/// Answers PUT of /tensors/NAME: publishes a file under a name. The file is sent whole, or in parts (Content-Range) in
/// any order and several at once. Readers see it when it is complete. HEAD and DELETE with ?upload report which parts
/// are missing, and abandon the upload.
/// Thread safety: all methods from any thread. They block while a part is copied and its digest is computed.
class UploadEndpoint {
public:
    explicit UploadEndpoint(Services& all) : all_(&all) {}

    /// Returns the error for a PUT that must be rejected whatever its body holds. Called before the body is read.
    std::optional<net::Response> reject_head(const net::RequestHead& head, const Principal& principal) const;
    /// Paths must begin with TensorEndpoint::kPrefix. An error response has a JSON-RPC error as its body. These throw
    /// Rejected.
    net::Response put(const net::Request& request, const Principal& principal) const;
    net::Response state(const net::RequestHead& head, const Principal& principal) const;
    net::Response abandon(const net::RequestHead& head, const Principal& principal) const;

private:
    std::optional<net::Response> rejection(const UploadRequest& wanted) const;
    net::Response put_bytes(const net::RequestHead& head, const Principal& principal,
                            std::span<const std::byte> bytes) const;
    net::Response put(const UploadRequest& wanted, std::span<const std::byte> bytes) const;
    std::optional<net::Response> settle(const UploadRequest& wanted, const runtime::Upload& upload) const;
    net::Response answer_part(const UploadRequest& wanted, const runtime::Upload& upload) const;
    net::Response publish(const UploadRequest& wanted, const runtime::UploadTable::UploadPointer& upload) const;
    net::Response unknown() const;

    Services* const all_;
};

}  // namespace shared_tensor::server
