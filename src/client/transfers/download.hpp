#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/transfers/transfer.hpp"

namespace shared_tensor::client {

struct DownloadForm {
    std::size_t connections = 4;                     ///< used at the same time
    std::size_t range_bytes = std::size_t{4} << 20;  ///< requested at once
    bool verify = true;                              ///< checks the digest of each range
};

/// A file of the server; all its bytes belong to one version.
struct Downloaded {
    std::shared_ptr<PooledBuffer> bytes;
    net::Headers headers;  ///< of the first answer
};

/// Downloads `path`. Blocks.
/// If the port compresses, one request asks for the whole file, compressed. Otherwise, or if the compressed answer was
/// cut off or damaged, the file comes in uncompressed ranges, several at a time on separate threads; the first request
/// tells the size. Bytes that arrived before a connection broke are kept, and only the rest is requested again. If the
/// file changes meanwhile, the download starts again; the last tries ask for the whole file in one request.
/// Throws TensorExpired if the file changed in every try, the server's error as a subclass of RpcError
/// (UnknownOrExpired for 404), TransportFailure if bytes were damaged on the way in every try, and the exceptions of
/// `port`.
Downloaded download(const TransferPort& port, const std::string& path, const DownloadForm& form);

}  // namespace shared_tensor::client
