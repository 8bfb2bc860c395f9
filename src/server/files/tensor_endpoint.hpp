#pragma once

#include <string>

#include "net/server/server.hpp"
#include "server/services.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor::server {

/// The media type of a form, for Content-Type and Accept.
const char* media_type_of(tensor::FileForm form);

/// Answers GET and HEAD of /tensors/NAME, /tensors/SET/MEMBER and /tensors/LEASE: sends tensors that are in the server
/// as a file, whole or in ranges, from the tensor's own memory.
/// Thread safety: all methods from any thread. If a digest is wanted, the caller blocks while the bytes are read.
class TensorEndpoint {
public:
    static constexpr std::string_view kPrefix = "/tensors/";

    explicit TensorEndpoint(Services& all) : all_(&all) {}

    /// The path must begin with kPrefix. An error response has a JSON-RPC error as its body; throws
    /// Rejected. A whole file that is
    /// compressed is written to `response_stream` while it is compressed.
    net::Response get(const net::RequestHead& head, const Principal& principal,
                      net::ResponseStream& response_stream) const;

private:
    struct Wanted;
    struct Found;
    Wanted parse(const net::RequestHead& head, const Principal& principal) const;
    Found find(const Wanted& wanted) const;

    Services* const all_;
};

}  // namespace shared_tensor::server
