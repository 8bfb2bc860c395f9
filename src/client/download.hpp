#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/error.hpp>

#include "http/client.hpp"

namespace shared_tensor::client {

/// How files are fetched. A seam: what sends and waits is the client's.
struct DownloadPort {
    /// One request with the client's own header fields. Throws http::TransportError.
    std::function<http::ClientResponse(http::ClientRequest)> send;
    /// After a try that failed, the `number`th without a byte of progress, 0 where there was some: whether to try
    /// again. Blocks for the pause.
    std::function<bool(const RpcError&, int number)> again;
    /// A buffer of at least so many bytes. Throws std::bad_alloc, RpcError for more than the client takes.
    std::function<std::shared_ptr<PooledBuffer>(std::uint64_t)> take;
};

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

/// Fetches `path` in ranges, several at a time on threads of their own: the first request tells the size. What a broken
/// connection brought is kept, and the rest asked for again. A file that changes meanwhile is begun anew, three times.
/// Blocks. Throws what the server answered as RpcError's child (UnknownOrExpired for 404), TransportFailure for bytes
/// that were damaged on the way each time, and what `port` throws.
Downloaded download(const DownloadPort& port, const std::string& path, const DownloadForm& form);

}  // namespace shared_tensor::client
