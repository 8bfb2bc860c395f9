#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/error.hpp>

#include "base/bytes/compression.hpp"
#include "base/concurrency/clock.hpp"
#include "client/call/failure.hpp"
#include "net/client/client.hpp"

// The common part of downloads and uploads.

namespace shared_tensor::client {

/// The functions with which a transfer sends requests and waits. The client provides them, tests replace them. They are
/// called from several threads at once.
struct TransferPort {
    /// Sends one request, with the client's own header fields added. Throws net::TransportError.
    std::function<net::ClientResponse(net::ClientRequest)> send;
    /// Called after a failed try. Returns true if the transfer is to try again; blocks for the pause before it.
    /// `number` counts the tries without progress; 0: this try made progress.
    std::function<bool(const RpcError&, int number)> again;
    /// Returns a buffer of at least the given size. Throws std::bad_alloc, and RpcError for a size above the client's
    /// limit.
    std::function<std::shared_ptr<PooledBuffer>(std::uint64_t)> take;
    const Clock* clock = &real_clock();
    SteadyTime deadline = SteadyTime::max();  ///< of the whole transfer
    Compression compression{};                ///< how files are compressed on their way
    CompressionTotals* totals = nullptr;      ///< counts the compressed bytes; may be null
};

/// Throws the error in the body of a rejection, as a subclass of RpcError. If there is no error in the body, throws as
/// throw_foreign() does.
[[noreturn]] void throw_rejection(const net::ClientResponse& response, const std::string& path);
/// Throws ProtocolFailure: the server broke the protocol.
[[noreturn]] void throw_odd(const std::string& path, const std::string& what);

std::string field_of(const net::Headers& headers, std::string_view name);

/// Calls `attempt(number)` until it succeeds. After a TransportFailure, ServerBusy or ShuttingDown, port.again()
/// decides about a further try; other errors are thrown. `attempt` sets `number` to 0 if it made progress.
template <class Attempt>
void until_it_holds(const TransferPort& port, const std::string& path, Attempt attempt) {
    for (int number = 1;; ++number) {
        try {
            try {
                return attempt(number);
            } catch (const net::TransportError& error) {
                throw_failure(error, {}, path);
            }
        } catch (const TransportFailure& error) {
            if (!port.again(error, number)) throw;
        } catch (const ServerBusy& error) {
            if (!port.again(error, number)) throw;
        } catch (const ShuttingDown& error) {
            if (!port.again(error, number)) throw;
        }
    }
}

/// Runs `work` on `threads` threads, including the calling thread, or on fewer if the system starts no more. Blocks
/// until all have returned. After an exception in one thread, `stop` returns true in the others; the first exception is
/// rethrown.
void on_threads(std::size_t threads, const std::function<void(const std::function<bool()>& stop)>& work);

}  // namespace shared_tensor::client
