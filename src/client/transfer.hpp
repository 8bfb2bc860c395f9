#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/error.hpp>

#include "client/failure.hpp"
#include "http/client.hpp"
#include "util/clock.hpp"
#include "util/compression.hpp"

// What downloads and uploads have in common.

namespace shared_tensor::client {

/// How files go to and fro. A seam: what sends and waits is the client's. Called from several threads at once.
struct TransferPort {
    /// One request with the client's own header fields. Throws http::TransportError.
    std::function<http::ClientResponse(http::ClientRequest)> send;
    /// After a try that failed, the `number`th without progress, 0 where there was some: whether to try
    /// again. Blocks for the pause.
    std::function<bool(const RpcError&, int number)> again;
    /// A buffer of at least so many bytes. Throws std::bad_alloc, RpcError for more than the client takes.
    std::function<std::shared_ptr<PooledBuffer>(std::uint64_t)> take;
    SteadyTime deadline = SteadyTime::max();  ///< of the whole transfer
    Compression compression{};                ///< how files are compressed on their way
    CompressionTotals* totals = nullptr;      ///< counts what was compressed; null: nobody does
};

/// The error that a refusal has as its body, as RpcError's child.
[[noreturn]] void throw_refusal(const http::ClientResponse& response, const std::string& path);
/// What no right server does: ProtocolFailure.
[[noreturn]] void throw_odd(const std::string& path, const std::string& what);

std::string field_of(const http::Headers& headers, std::string_view name);

/// Calls `attempt(number)` until it holds; it may set the number to 0. What it throws as a failure of transport, or as
/// an error that passes, is tried again.
template <class Attempt>
void until_it_holds(const TransferPort& port, const std::string& path, Attempt attempt) {
    for (int number = 1;; ++number) {
        try {
            try {
                return attempt(number);
            } catch (const http::TransportError& error) {
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

/// Does `work` on so many threads, this one among them. Blocks until all have done; rethrows what the first threw, and
/// the others find `stop` true then.
void on_threads(std::size_t threads, const std::function<void(const std::function<bool()>& stop)>& work);

}  // namespace shared_tensor::client
