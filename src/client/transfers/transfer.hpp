#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/tensors.hpp>

#include "base/bytes/compression.hpp"
#include "base/concurrency/guarded.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "net/client/client.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"

// Downloads and uploads of files.

namespace shared_tensor {

/// The content of one version of a named tensor.
struct NamedTensor::Content {
    std::string name;
    std::uint64_t version = 0;
    std::map<std::string, std::string> metadata;
    codec::TensorPointer tensor;  ///< null for a set
    tensor::TensorMap members;    ///< of a set; each member keeps its block
    tensor::TensorMap blocks;     ///< allocations of a set that the server lent, by the server's ids
};

/// `members` are pairs of a name and a tensor. Throws std::invalid_argument for a name that occurs twice.
template <class Members>
tensor::TensorMap by_name(const Members& members) {
    tensor::TensorMap tensors;
    for (const auto& [member, tensor] : members) {
        if (!tensors.emplace(member, tensor::make_handle(tensor)).second)
            throw std::invalid_argument("a set has one tensor for each name, not two for \"" + member + '"');
    }
    return tensors;
}

}  // namespace shared_tensor

namespace shared_tensor::client {

/// One download or upload: its requests, its tries and its limits. Thread safety: all methods from any thread.
class Transfer {
public:
    /// `core` and `call` must outlive it. Uses only the timeout, the stop and the session of `call`: a transfer may
    /// always be repeated. Throws Cancelled if the stop was requested already.
    Transfer(Core& core, std::string path, const CallOptions& call);

    /// Sends one request, with the client's own header fields added. Throws net::TransportError.
    net::ClientResponse send(net::ClientRequest request) const;
    /// The size of the largest file that is downloaded: the memory that this process may use.
    static std::uint64_t max_file_bytes();
    /// Returns a buffer of at least `bytes`. Throws std::bad_alloc, and RpcError for a size above max_file_bytes().
    std::shared_ptr<PooledBuffer> take(std::uint64_t bytes) const;
    /// Throws as take() does.
    void check_size(std::uint64_t bytes) const;

    /// Calls `attempt(number)` until it succeeds, as often as the client repeats a call that is idempotent. `number`
    /// counts the tries without progress: `attempt` sets it to 0 if it made progress, and the next try then follows
    /// at once. A request that had no answer in time is repeated too, unless the time of the whole transfer is over.
    /// `path` is for error texts.
    template <class Attempt>
    void until_it_holds(const std::string& path, Attempt attempt) const {
        Core::Times times = times_;
        core_->retried(repeatable_, times, [&](int& number) {
            try {
                attempt(number);
            } catch (const net::TransportError& error) {
                throw_failed(error, path);
            }
        });
    }
    /// Counts the bytes of compressed files in the statistics.
    void count(const CompressionCounts& bytes) const;

    const Clock& clock() const { return core_->clock(); }
    SteadyTime start() const { return times_.start; }
    /// Whether another request may begin before the deadline.
    bool has_time() const { return clock().now() < times_.deadline; }
    SteadyTime deadline() const { return times_.deadline; }
    const std::stop_token& stop() const { return call_->stop; }
    const TlsOptions& tls() const { return core_->options_.tls; }
    /// How files are compressed on their way.
    const Compression& compression() const { return compression_; }

private:
    [[noreturn]] void throw_failed(const net::TransportError& error, const std::string& path) const;

    Core* const core_;
    const std::string path_;
    const CallOptions* const call_;
    const CallOptions repeatable_;
    Core::Times times_;
    Compression compression_{};
};

/// Counts the bytes of a transfer for a TransferProgress, which may be empty. Thread safety: all methods from any
/// thread.
class TransferCount {
public:
    /// `progress` must outlive it.
    explicit TransferCount(const TransferProgress& progress) : progress_(progress) {}

    /// Sets both numbers. Throws what the progress throws, like add().
    void set(std::uint64_t bytes, std::uint64_t size);
    void add(std::uint64_t bytes);

private:
    struct State {
        std::uint64_t bytes = 0, size = 0;
    };
    const TransferProgress& progress_;
    Guarded<State> state_;  // locked during the call: one call at a time
};

/// Throws the error in the body of a rejection, as a subclass of RpcError. If there is no error in the body, throws as
/// throw_foreign() does.
[[noreturn]] void throw_rejection(const net::ClientResponse& response, const std::string& path);
/// Throws ProtocolFailure: the server broke the protocol.
[[noreturn]] void throw_odd(const std::string& path, const std::string& what);

std::string field_of(const net::Headers& headers, std::string_view name);

/// A file of the server; all its bytes belong to one version.
struct Downloaded {
    std::shared_ptr<PooledBuffer> bytes;
    net::Headers headers;  ///< of the first answer
};

/// Downloads `path`. Blocks. Uses the connections, the size of a range and `verify` of `options`.
/// If the client compresses, one request asks for the whole file, compressed. Otherwise, or if the compressed answer
/// was cut off or damaged, the file comes in uncompressed ranges, several at a time on separate threads; the first
/// request tells the size. Bytes that arrived before a connection broke are kept, and only the rest is requested again.
/// If the file changes meanwhile, the download starts again; the last tries ask for the whole file in one request.
/// Throws TensorExpired if the file changed in every try, the server's error as a subclass of RpcError
/// (UnknownOrExpired for 404), TransportFailure if bytes were damaged on the way in every try, and
/// std::invalid_argument for invalid options.
Downloaded download(Core& core, const std::string& path, const PullOptions& options, const CallOptions& call);

/// A file in memory, sent without a copy.
struct UploadFile {
    std::string path;                    ///< without the id of the upload
    net::Headers headers{};              ///< describe the form of the file
    std::vector<net::BodyPart> parts{};  ///< the file's bytes, in order; no part may have a `source`
    std::uint64_t size = 0;
};

/// Uploads a file in parts, several at a time on separate threads; a small file in one request. Returns the version of
/// the named tensor. Blocks. Parts that were lost or damaged on the way are sent again. At the end the server is asked
/// for parts that it lost, and these are sent again, three times at most.
/// Throws the server's error as a subclass of RpcError, TransportFailure, and std::invalid_argument for invalid
/// options. After an exception the server is told to drop the received parts, unless the upload may be resumed later.
std::uint64_t upload(Core& core, const UploadFile& file, const PushOptions& options, const CallOptions& call);

}  // namespace shared_tensor::client
