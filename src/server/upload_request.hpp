#pragma once

#include <cstdint>
#include <optional>

#include "http/byte_range.hpp"
#include "http/message.hpp"
#include "server/principal.hpp"
#include "service/upload_table.hpp"
#include "tensor/tensor_file.hpp"

namespace shared_tensor::server {

/// What a request about an upload says.
struct UploadRequest {
    service::UploadTable::Key key;
    service::UploadTable::Payer payer{};
    std::optional<tensor::FileForm> file_form;  ///< none: neither name nor type tell it
    std::optional<std::uint64_t> if_version;
    service::UploadForm form;
    http::ByteRange part;
    bool is_whole = false;
    tensor::RawForm raw;
};

/// HEAD and DELETE are for an upload and not for the tensor. False for what cannot be understood.
bool is_about_upload(const http::RequestHead& head);

/// Whom it is about: the path, and the parameters of the query. Paths begin with TensorEndpoint::kPrefix. Throws
/// Refused where that cannot be understood.
UploadRequest parse_upload_request(const http::RequestHead& head, const Principal& principal);

/// All that the head of a PUT tells of the `bytes` behind it. Throws the same.
UploadRequest parse_put(const http::RequestHead& head, const Principal& principal, std::uint64_t bytes);

}  // namespace shared_tensor::server
