#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/transfer.hpp"
#include "http/message.hpp"

namespace shared_tensor::client {

struct UploadForm {
    std::size_t connections = 4;                    ///< at once
    std::size_t part_bytes = std::size_t{1} << 20;  ///< of one request
    bool verify = true;                             ///< each part goes with its digest; with `resume` always
    bool resume = false;                            ///< what the server has of the same file is not sent
};

/// A file that is sent from where it lies.
struct UploadFile {
    std::string path;                     ///< without the upload's id
    http::Headers headers{};              ///< that tell its form
    std::vector<http::BodyPart> parts{};  ///< of its bytes, in order; none with a source
    std::uint64_t size = 0;
};

struct Uploaded {
    std::uint64_t version = 0, bytes = 0;
};

/// Puts the file in parts, several at a time on threads of their own; small ones in one request. Parts that do not
/// arrive, or damaged, are sent again; what the server lost is asked for in the end and sent once more, three times.
/// `id` is the upload's own, but for one that resumes, which is known by its content. Blocks. Throws what the server
/// answered as RpcError's child, TransportFailure, and what `port` throws; then the server is told to drop what it has,
/// unless somebody may resume it.
Uploaded upload(const TransferPort& port, const UploadFile& file, const std::string& id, const UploadForm& form);

}  // namespace shared_tensor::client
