#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "http/server.hpp"
#include "server/message_references.hpp"
#include "server/named_tensors.hpp"
#include "server/principal.hpp"
#include "server/upload_request.hpp"
#include "service/upload_table.hpp"
#include "util/compression.hpp"

namespace shared_tensor::server {

/// Answers PUT of /tensors/NAME: publishes a file under a name. The file is sent whole, or in parts (Content-Range) in
/// any order and several at once. Readers see it when it is complete. HEAD and DELETE with ?upload report which parts
/// are missing, and abandon the upload.
/// Thread safety: all methods from any thread. They block while a part is copied and its digest is computed.
class UploadEndpoint {
public:
    /// The arguments must outlive it. `max_body_bytes` limits a compressed body after decompression.
    UploadEndpoint(NamedTensors& names, service::UploadTable& uploads, std::string epoch, const ServerValues& values,
                   CompressionTotals& totals, std::size_t max_body_bytes)
        : names_(&names),
          uploads_(&uploads),
          epoch_(std::move(epoch)),
          values_(&values),
          totals_(&totals),
          max_body_bytes_(max_body_bytes) {}

    /// Returns the error for a PUT that must be rejected whatever its body holds. Called before the body is read.
    std::optional<http::Response> reject_head(const http::RequestHead& head, const Principal& principal) const;
    /// Paths must begin with TensorEndpoint::kPrefix. An error response has a JSON-RPC error as its body.
    http::Response put(const http::Request& request, const Principal& principal) const;
    http::Response state(const http::RequestHead& head, const Principal& principal) const;
    http::Response abandon(const http::RequestHead& head, const Principal& principal) const;

private:
    std::optional<http::Response> rejection(const UploadRequest& wanted) const;
    http::Response put_bytes(const http::RequestHead& head, const Principal& principal,
                             std::span<const std::byte> bytes) const;
    http::Response put(const UploadRequest& wanted, std::span<const std::byte> bytes) const;
    std::optional<http::Response> settle(const UploadRequest& wanted, const service::Upload& upload) const;
    http::Response answer_part(const UploadRequest& wanted, const service::Upload& upload) const;
    http::Response publish(const UploadRequest& wanted, const service::UploadTable::UploadPointer& upload) const;
    http::Response unknown() const;

    NamedTensors* const names_;
    service::UploadTable* const uploads_;
    const std::string epoch_;
    const ServerValues* const values_;
    CompressionTotals* const totals_;
    const std::size_t max_body_bytes_;
};

}  // namespace shared_tensor::server
