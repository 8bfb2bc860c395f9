#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/client_options.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/receipt.hpp>

#include "client/budget.hpp"
#include "client/download.hpp"
#include "client/incoming.hpp"
#include "client/objects.hpp"
#include "client/outgoing.hpp"
#include "client/tensor_ports.hpp"
#include "client/transport.hpp"
#include "client/upload.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/latency_histogram.hpp"
#include "util/of_this_process.hpp"

namespace shared_tensor::client {

/// The world that a client lives in. Tests give another.
struct Surroundings {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<TensorPorts> ports;
    const Clock* clock = &real_clock();
    /// Waits until that time; none: really, but no longer than until shutdown() or the call's stop.
    std::function<void(SteadyTime)> sleep_until;
    /// Another one of the same kind, for a forked child. None: a child cannot use this client.
    std::function<Surroundings()> anew{};
};

/// The real one. Throws std::invalid_argument for a url that is none.
Surroundings real_surroundings(const ClientOptions& options);

/// So long after `now`; a wait of years would overflow the clock.
SteadyTime later(SteadyTime now, std::chrono::milliseconds wait);

/// Between tries to reach a server that has not been there yet.
inline constexpr std::chrono::milliseconds kStartPause{50};

/// By which the client asks for a result that it cannot open in another way.
inline constexpr const char* kFetch = "lease.get";

/// What the handles of one client share: sends requests, repeats them where that is safe, and counts. Objects in the
/// server are results only for one that is owned by a shared_ptr: their handles keep it.
/// Connections, shared memory, locks and counters are of one process: a forked child has others (struct Local).
/// Thread safety: all methods from any thread.
class Core : public std::enable_shared_from_this<Core> {
public:
    Core(ClientOptions options, Surroundings surroundings);

    /// An empty request with ids of its own.
    Outgoing compose(Outgoing::Form form, std::size_t calls = 1, const CallOptions& options = {});

    /// Blocks until the answer is there: tries until one succeeds (retried), each of which is one HTTP request
    /// (send_once). What the server cannot open is sent once more, another way. `request` is finished; `receipt` may be
    /// null. Throws RpcError's children.
    Incoming send(const Outgoing& request, const CallOptions& options, Receipt* receipt = nullptr);

    /// compose, send, read.
    void call(std::string_view method, const CallArguments& arguments, detail::ResultSlot& slot,
              const CallOptions& options, Receipt* receipt = nullptr);
    void notify(std::string_view method, const CallArguments& arguments, const CallOptions& options);

    /// A file of the server's. Of `options` the timeout and the session count: it is safe to repeat. See download().
    Downloaded download(const std::string& path, const DownloadForm& form, const CallOptions& options);
    /// The same for a file to the server. See upload().
    Uploaded upload(const UploadFile& file, const UploadForm& form, const CallOptions& options);

    /// The session on the local channel that a request goes with, empty where there is none.
    std::string session_for(const Outgoing& request) const;

    /// A WebSocket with the headers of a request; `session` is that of the ports, "" for none. Throws as calls do.
    std::shared_ptr<http::WebSocket> connect_web_socket(std::string_view method, const CallOptions& options,
                                                        const std::string& session, SteadyTime deadline);
    /// For what comes on it.
    ObjectsOf objects_of_answers();
    Fetch fetches(const CallOptions& options);
    /// Called once at shutdown(), at once if that was before, unless what is returned went before. `ended` must not
    /// block.
    std::shared_ptr<const void> on_shutdown(std::function<void()> ended);
    const ClientOptions& options() const { return options_; }
    /// One request of the statistics, whatever it takes.
    template <class Run>
    auto counted(SteadyTime start, Run run);

    const TensorPorts& ports() const { return *here().surroundings.ports; }

    /// Ends all waits: what is in flight fails with TransportFailure, and so does everything after it.
    void shutdown();
    bool is_shut_down() const;

    /// Asks the server whether it knows zstd, if that is of interest and nobody knows yet. Blocks for a call, 5 s at
    /// most. Of `of_call` the timeout and the stop count.
    void agree_on_coding(const CallOptions& of_call);

    /// A session on the local channel, or nothing where there is none.
    std::optional<std::string> open_stateful_session() const { return ports().open_stateful_session(); }

    /// See TensorPorts.
    SharedBytes take_shared(std::uint64_t bytes) const { return ports().take_shared(bytes); }

    const std::string& url() const { return options_.url; }
    ClientStatistics statistics() const;
    const Clock& clock() const { return *here().surroundings.clock; }

    /// Of one request.
    struct Times {
        SteadyTime start, deadline, start_of_server;
        Receipt* receipt = nullptr;  ///< where to tell of each try
    };
    Times times_of(const CallOptions& options) const;
    /// Tries until `attempt()` does not throw, as often as the options allow.
    template <class Attempt>
    auto retried(const CallOptions& options, const Times& times, Attempt attempt);

private:
    struct MemoryGone;
    std::optional<SteadyTime> next_try(const RpcError& error, const CallOptions& options, const Times& times,
                                       int& tries);
    Incoming send_once(const Outgoing& request, const CallOptions& options, const Times& times);
    http::ClientRequest try_of(const Outgoing& request, const CallOptions& options, const std::string& shared,
                               SteadyTime now, const Times& times) const;
    [[noreturn]] void forget_session(const std::string& session, const Outgoing& request,
                                     const SessionRefused& refused) const;
    bool is_start(const RpcError& error, const Times& times) const;
    std::optional<std::chrono::milliseconds> pause_after(const RpcError& error, const CallOptions& options, int tries);
    template <class Transfer>
    auto transfer(const std::string& path, const CallOptions& options, Transfer run);
    bool tries_again(const RpcError& error, int number, const CallOptions& options, const Times& times);
    void sleep_until(SteadyTime time, const std::stop_token& stop);
    void note_coding(const http::ClientResponse& response);
    void note_times(const http::Headers& headers, SteadyTime sent);

    http::Headers headers_of(const CallOptions& options, const std::string& shared) const;
    std::shared_ptr<Objects> objects();
    codec::TensorPointer fetch(const NotOpened& lost, const CallOptions& of_call);
    std::shared_ptr<PooledBuffer> fetch(const ByUrl& there, CallOptions options);
    bool goes_another_way(const InvalidParams& error, const Outgoing& request) const;
    void release(const std::vector<std::string>& ids);

    using Ended = std::function<void()>;
    /// What belongs to one process.
    struct Local {
        Local(Surroundings the_surroundings, RetryBudget limits)
            : surroundings(std::move(the_surroundings)), budget(limits) {}
        const Surroundings surroundings;
        Budget budget;
        std::atomic<bool> coding_known{false};
        CompressionTotals compression;  ///< of files
        LatencyHistogram latency, compute, network;
        Guarded<std::weak_ptr<Objects>> objects;  ///< there while handles are, and then keep the core
        Guarded<bool> shut_down{false};
        Guarded<std::vector<std::weak_ptr<const Ended>>> at_end;
        std::atomic<bool> reached{false};  ///< the server has been there once
        std::atomic<std::uint64_t> next_id{1}, requests{0}, failures{0}, retries{0};
    };
    Local& here() const {
        return local_.get([this] { return make_local(anew_()); });
    }
    std::unique_ptr<Local> make_local(Surroundings surroundings) const;

    const ClientOptions options_;
    const Compression compression_;  // of tensors on their way to servers of other hosts
    const std::function<Surroundings()> anew_;
    http::Headers headers_;               // of every request
    std::atomic<bool> shut_down_{false};  // also for children that are forked later
    mutable OfThisProcess<Local> local_;
};

template <class Attempt>
auto Core::retried(const CallOptions& options, const Times& times, Attempt attempt) {
    bool may_have_run = false;  // by an earlier try
    for (int tries = 1;;) {
        SteadyTime again;
        try {
            return attempt();
        } catch (const Cancelled& error) {
            if (error.may_have_run() || !may_have_run) throw;
            throw Cancelled(error.code(), error.message(), error.data(),
                            std::string(error.what()) + " in this try, but an earlier one may have run");
        } catch (const RpcError& error) {
            const auto next = next_try(error, options, times, tries);
            if (!next) throw;
            again = *next;
            const auto* failure = dynamic_cast<const TransportFailure*>(&error);
            may_have_run |= failure != nullptr && failure->may_have_run();
        }
        sleep_until(again, options.stop);
        here().retries.fetch_add(1, std::memory_order_relaxed);
    }
}

template <class Run>
auto Core::counted(SteadyTime start, Run run) {
    Local& local = here();
    local.requests.fetch_add(1, std::memory_order_relaxed);
    local.budget.earn();
    try {
        auto result = run();
        local.latency.record(clock().now() - start);
        return result;
    } catch (...) {
        local.failures.fetch_add(1, std::memory_order_relaxed);
        local.latency.record(clock().now() - start);
        throw;
    }
}

}  // namespace shared_tensor::client
