#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/transfers/transfer.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::client {

struct UploadForm {
    std::size_t connections = 4;                    ///< used at the same time
    std::size_t part_bytes = std::size_t{1} << 20;  ///< sent in one request
    bool verify = true;                             ///< sends a digest with each part; with `resume` always
    bool resume = false;  ///< does not send parts that an unfinished upload of the same file has sent already
};

/// A file in memory, sent without a copy.
struct UploadFile {
    std::string path;                    ///< without the id of the upload
    net::Headers headers{};              ///< describe the form of the file
    std::vector<net::BodyPart> parts{};  ///< the file's bytes, in order; no part may have a `source`
    std::uint64_t size = 0;
};

struct Uploaded {
    std::uint64_t version = 0, bytes = 0;
};

/// Uploads a file in parts, several at a time on separate threads; a small file in one request. Parts that were lost or
/// damaged on the way are sent again. At the end the server is asked for parts that it lost, and these are sent again,
/// three times at most. `id` identifies the upload, except that an upload with `resume` is identified by its content.
/// Blocks.
/// Throws the server's error as a subclass of RpcError, TransportFailure, and the exceptions of `port`. After an
/// exception the server is told to drop the received parts, unless the upload may be resumed later.
Uploaded upload(const TransferPort& port, const UploadFile& file, const std::string& id, const UploadForm& form);

}  // namespace shared_tensor::client
