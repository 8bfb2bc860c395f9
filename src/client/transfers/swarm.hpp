#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/concurrency/at_end.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "client/transfers/relay.hpp"
#include "client/transfers/transfer.hpp"
#include "net/client/client.hpp"
#include "net/message/fields.hpp"

namespace shared_tensor::client {

/// The server does not say what to fetch from whom.
struct NoSwarm {};

/// This process as one of several that fetch the same file at the same time: asks the file's server which piece to
/// fetch from whom, and passes pieces on to the others. Thread safety: all methods from any thread.
class Swarm {
public:
    /// How a file is fetched from its server. `ask` sends a report, which is a JSON text, and returns the server's
    /// answer; with `once_until` it is sent once, and its answer waited for until then. `complete` fetches what is
    /// missing of a range if that is little or nothing; else returns false, and `fetch` will fetch the whole range into
    /// its place. They throw what ends the transfer.
    struct Source {
        std::function<std::string(const std::string& report, std::optional<SteadyTime> once_until)> ask;
        std::function<bool(const net::ByteRange& range)> complete;
        std::function<void(const net::ByteRange& range)> fetch;
        std::function<void(const net::ByteRange& range)> arrived;  ///< called for what another receiver passed on
        SteadyTime deadline = SteadyTime::max();  ///< of the transfer, for requests to other receivers, as the next
        std::stop_token stop{};
    };
    using Ranges = std::vector<net::ByteRange>;
    /// `options`, `tls` and `source` outlive it. `file` has the size of the file. `tls`: of this process; without a
    /// certificate relays use plain HTTP. Throws std::system_error if it cannot listen, and std::invalid_argument for
    /// bad certificates.
    Swarm(const PullOptions& options, const TlsOptions& tls, const Source& source, std::shared_ptr<PooledBuffer> file);
    ~Swarm();

    /// Blocks until the file is complete, and then until no other receiver lacks pieces, but no longer than
    /// SwarmOptions::linger.
    void run();
    /// After run() threw: the parts of the file that are not there, in order. `missing_before` returns the parts of a
    /// range that were not there when run() began.
    Ranges missing(const std::function<Ranges(const net::ByteRange& range)>& missing_before) const;

private:
    struct Step {
        std::string receiver, from, digest;
        std::optional<std::uint64_t> piece;
        std::uint64_t piece_bytes = 0;
        std::size_t missing = 0, unfinished = 0;
    };
    using Pieces = std::vector<std::uint64_t>;
    Step ask(const Pieces& got, const Pieces& lost, std::optional<SteadyTime> once_until = {});
    Step parse(const std::string& answer) const;
    std::string report(const std::string& receiver, const Pieces& got, const Pieces& lost, bool leaves) const;
    /// How many pieces of this size the file has.
    std::uint64_t pieces_of(std::uint64_t piece_bytes) const;
    net::ByteRange range_of(std::uint64_t piece) const;
    bool fetch_from_relay(const Step& step);
    void add(std::uint64_t piece);
    Pieces complete_pieces();
    void work(Step step);
    void fetch_all();
    bool has_failed() const { return failed_.stop_requested(); }
    void linger();

    const PullOptions& options_;
    const std::shared_ptr<const net::TlsClient> tls_client_;  // null: plain HTTP
    const Source& source_;
    const std::shared_ptr<PooledBuffer> file_;
    std::uint64_t piece_bytes_ = 0;  // as the server says; set before other threads begin, as the next
    Guarded<std::string> receiver_;  // as the server names it; empty: it knows nothing of this one yet
    Relay relay_;
    std::atomic<std::uint64_t> left_{0};  // pieces that have not arrived
    std::stop_source failed_;
    const EitherStop ends_;                         // failed, or stopped by the caller
    Guarded<std::set<std::uint64_t>> under_way_;    // the pieces that a thread fetches
    Guarded<std::set<std::uint64_t>> from_relays_;  // the pieces of which another receiver may have sent bytes
    Guarded<std::map<std::string, std::shared_ptr<net::Client>>> peers_;  // by the relay's address
};

}  // namespace shared_tensor::client
