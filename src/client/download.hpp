#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/transfer.hpp"

namespace shared_tensor::client {

struct DownloadForm {
    std::size_t connections = 4;                     ///< at once
    std::size_t range_bytes = std::size_t{4} << 20;  ///< of one request
    bool verify = true;                              ///< each range is held against its digest
};

/// A file of the server's as it was at one moment.
struct Downloaded {
    std::shared_ptr<PooledBuffer> bytes;
    http::Headers headers;  ///< of the first answer
};

/// Fetches `path`. Where the port compresses: by one request for the whole file, compressed. Else, or where that broke
/// off, in ranges as they are, several at a time on threads of their own: the first request tells the size. What a
/// broken connection brought is kept, and the rest asked for again. A file that changes meanwhile is begun anew, at
/// last by one request for all of it; TensorExpired if it changed each time all the same. Blocks. Throws what the
/// server answered as RpcError's child (UnknownOrExpired for 404), TransportFailure for bytes that were damaged on the
/// way each time, and what `port` throws.
Downloaded download(const TransferPort& port, const std::string& path, const DownloadForm& form);

}  // namespace shared_tensor::client
