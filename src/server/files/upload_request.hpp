#pragma once

#include <cstdint>
#include <optional>

#include "net/message/byte_range.hpp"
#include "net/message/message.hpp"
#include "runtime/tables/upload_table.hpp"
#include "server/auth/principal.hpp"
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

}  // namespace shared_tensor::server
