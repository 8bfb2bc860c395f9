#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/detail/call.hpp>

#include "base/bytes/ids.hpp"
#include "base/bytes/latency_histogram.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "client/call/dependencies.hpp"
#include "client/call/incoming.hpp"
#include "client/call/outgoing.hpp"
#include "net/message/message.hpp"
#include "tracing/tracer.hpp"

namespace shared_tensor::local {
class WaitLimit;
}

namespace shared_tensor::client {

/// The times of a call in the server, from Server-Timing. A time is empty if the field did not contain it.
struct ServerTimes {
    std::optional<std::chrono::nanoseconds> queue, compute;
};

/// Reads the field's value: "queue;dur=0.012, compute;dur=1.250", in milliseconds. Skips unknown entries.
ServerTimes read_server_times(std::string_view field);

/// Reads the value of Shared-Tensor-Transport: "shm;tensors=2;copied=0, body;tensors=1;copied=400".
std::vector<Receipt::Transport> read_transports(std::string_view field);

/// Fills `receipt` from the header fields of an answer. `copied`: bytes that the client copied for the request.
void note_answer(Receipt& receipt, const net::Headers& headers, std::uint64_t copied);

/// The longest wait in the server of one request, which is below the server's limit, and the time for its answer in
/// addition.
inline constexpr std::chrono::milliseconds kLongestWait{20'000}, kAnswerTime{10'000};

/// Calls `ask(step)`, which waits in the server for `step` (`longest` at most), until it returns true or `deadline` is
/// over. Calls it at least once.
void wait_in_steps(SteadyTime deadline, std::chrono::milliseconds longest,
                   const std::function<bool(std::chrono::milliseconds step)>& ask);

/// The trace that a call belongs to: its option, else the call that this thread works for; empty: none.
std::string_view trace_of(const CallOptions& options);
/// Returns options for use on another thread.
CallOptions with_trace(CallOptions options);
/// Adds the header traceparent, if the call belongs to a trace.
void add_trace(net::Headers& headers, const CallOptions& options);

/// The time of a try that follows at once.
inline constexpr SteadyTime kAtOnce{};

/// Counts the retries that a RetryBudget allows. Thread safety: all methods from any thread.
class Budget {
public:
    explicit Budget(RetryBudget limits) : limits_(limits), saved_(limits.saved) {
        if (limits.per_call < 0 || limits.saved < 0) {
            throw std::invalid_argument("RetryBudget: per_call and saved can't be negative");
        }
    }

    void earn() {
        saved_.with([&](double& saved) { saved = std::min(limits_.saved, saved + limits_.per_call); });
    }
    /// Takes one retry from the budget. Returns false if the budget is exhausted.
    bool spend() {
        return saved_.with([](double& saved) {
            if (saved < 1) return false;
            saved -= 1;
            return true;
        });
    }

private:
    const RetryBudget limits_;
    Guarded<double> saved_;
};

/// Reads a result with the function `Read`.
template <auto Read>
class SlotOf final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override { value = Read(reader); }
    std::invoke_result_t<decltype(Read), const ValueReader&> value{};
};

/// The implementation that all copies of a client share: sends requests, repeats them where that is safe, and counts
/// them.
/// Results can be objects in the server only if a shared_ptr owns the core, because the handles of objects keep it
/// alive.
/// Connections, shared memory, locks and counters belong to one process: a forked child makes its own (struct Local).
/// Thread safety: all methods from any thread.
class Core : public std::enable_shared_from_this<Core> {
public:
    Core(ClientOptions options, Dependencies dependencies);

    /// Returns an empty request with `calls` unused ids.
    Outgoing compose(Outgoing::Form form, std::size_t calls = 1, const CallOptions& options = {});
    /// CallOptions::require for what is sent in the session of `options`: bytes, if it may name no memory.
    std::string required(const CallOptions& options) const;

    /// Returns a finished request for one call.
    Outgoing request(std::string_view method, const CallArguments& arguments, const CallOptions& options = {});

    /// Sends a finished request and returns its answer. Blocks. Each try is one HTTP request (send_once); tries are
    /// repeated as the options allow (retried). If the server cannot open a tensor of the request, the request is sent
    /// once more with another transport. `receipt` may be null; its old content is replaced. Throws subclasses of
    /// RpcError.
    Incoming send(const Outgoing& request, const CallOptions& options, Receipt* receipt = nullptr) {
        return send_within(times_of(options), request, options, receipt);
    }

    /// Composes a call, sends it, and reads its result into `slot`.
    void call(std::string_view method, const CallArguments& arguments, detail::ResultSlot& slot,
              const CallOptions& options, Receipt* receipt = nullptr);
    void notify(std::string_view method, const CallArguments& arguments, const CallOptions& options);

    /// Returns the session on the local channel with which to send `request`; empty if there is none.
    std::string session_for(const Outgoing& request) const;

    /// Opens a WebSocket with the header fields of a request. `session` is the session on the local channel, "" for
    /// none. `method` is for error texts. Blocks, until `deadline` at most. shutdown() aborts the WebSocket. Throws as
    /// calls do.
    std::shared_ptr<net::WebSocket> connect_web_socket(std::string_view method, const CallOptions& options,
                                                       const std::string& session, SteadyTime deadline);
    /// The table that adopts the object handles of answers.
    std::shared_ptr<Objects> objects();
    const ClientOptions& options() const { return options_; }
    /// Calls `run`, and counts it as one request in the statistics.
    template <class Run>
    auto counted(SteadyTime start, Run run);

    const TensorPorts& ports() const { return *here().dependencies.ports; }

    /// Ends all waits: requests in flight and all later requests fail with TransportFailure.
    void shutdown();
    bool is_shut_down() const;

    /// Asks the server whether it supports zstd, if tensors may be compressed and the answer is not known yet. Blocks
    /// for one call, at most 5 s. Uses the timeout and the stop of `of_call`.
    void agree_on_coding(const CallOptions& of_call);

    /// Called when the server does not know `session`, which the client chose: the server was started anew, or the
    /// local channel belongs to another server. Nothing ran. Throws TransportFailure.
    [[noreturn]] void forget_session(const std::string& session) const;

    const std::string& url() const { return options_.url; }
    ClientStatistics statistics() const;
    const Clock& clock() const { return *here().dependencies.clock; }

    /// The times of one request.
    struct Times {
        SteadyTime start, deadline, start_of_server;
        bool may_have_run = false;  ///< an earlier try of a call may have run
        /// A try of a transfer after the delay that a busy server asked for costs nothing of the retry budget.
        bool of_transfer = false;
    };
    Times times_of(const CallOptions& options) const;
    /// Limits how long this thread waits on the local channel while it prepares a call: until `deadline`, the stop of
    /// the call, or shutdown().
    local::WaitLimit wait_limit(SteadyTime deadline, const std::stop_token& stop) const;
    local::WaitLimit wait_limit(const CallOptions& options) const;  ///< the times of a call that begins now
    /// Calls `read`, which reads the result of a call: its memory may have to be asked for on the local channel. Throws
    /// Cancelled and DeadlineExceeded if the stop or `deadline` ended that.
    void read_within(SteadyTime deadline, const CallOptions& options, std::string_view method,
                     const std::function<void()>& read) const;
    /// Sends a request whose time began earlier: see send().
    Incoming send_within(Times times, const Outgoing& request, const CallOptions& options, Receipt* receipt = nullptr);
    /// Calls `attempt(tries)` until it does not throw RpcError, as often as the options and `times` allow. Blocks
    /// between tries. An attempt that made progress sets `tries` to 0: the next try then follows at once.
    template <class Attempt>
    auto retried(const CallOptions& options, Times& times, Attempt attempt);

private:
    friend class Transfer;
    SteadyTime next_try(const RpcError& error, const CallOptions& options, Times& times, int& tries);
    net::ClientResponse exchange(const net::ClientRequest& request) const;
    Incoming send_tries(const Outgoing& request, const CallOptions& options, Times& times, Receipt* receipt);
    Incoming send_once(const Outgoing& request, const CallOptions& options, const Times& times, Receipt* receipt);
    net::ClientRequest try_of(const Outgoing& request, const CallOptions& options, const std::string& shared,
                              SteadyTime now, const Times& times) const;
    bool is_start(const RpcError& error, const Times& times) const;
    std::optional<std::chrono::milliseconds> pause_after(const RpcError& error, const CallOptions& options, int tries);
    void sleep_until(SteadyTime time, const std::stop_token& stop);
    void note_coding(const net::ClientResponse& response);
    void note_times(const net::Headers& headers, SteadyTime sent);

    std::string name_of(const Outgoing& request) const;
    net::Headers headers_of(const CallOptions& options, const std::string& shared) const;
    bool uses_another_transport(const InvalidParams& error, const Outgoing& request) const;
    void release(const std::vector<std::string>& ids);

    /// The state that belongs to one process.
    struct Local {
        Local(Dependencies the_dependencies, RetryBudget limits)
            : dependencies(std::move(the_dependencies)), budget(limits) {}
        const Dependencies dependencies;
        const std::string name = random_hex(4);  ///< the beginning of the names of its requests
        Budget budget;
        std::unique_ptr<tracing::Tracer> tracer;  ///< null: there are no spans
        std::atomic<bool> coding_known{false};
        CompressionTotals compression;  ///< of uploads and downloads
        LatencyHistogram latency, compute, network;
        Guarded<std::weak_ptr<Objects>> objects;  ///< alive as long as handles exist; keeps the core alive
        Guarded<bool> shut_down{false};
        std::stop_source no_more_waits;  ///< requested by shutdown()
        Guarded<std::vector<std::weak_ptr<net::WebSocket>>> sockets;
        std::atomic<bool> reached{false};  ///< the server was reached once
        std::atomic<std::uint64_t> next_id{1}, requests{0}, failures{0}, retries{0};
    };
    Local& here() const {
        return local_.get([this] { return make_local(anew_()); });
    }
    std::unique_ptr<Local> make_local(Dependencies dependencies) const;

    const ClientOptions options_;
    const Compression compression_;  // of tensors sent to servers on other hosts
    const std::function<Dependencies()> anew_;
    net::Headers headers_;                // in every request
    std::atomic<bool> shut_down_{false};  // also for children that are forked later
    mutable OfThisProcess<Local> local_;
};

template <class Attempt>
auto Core::retried(const CallOptions& options, Times& times, Attempt attempt) {
    for (int tries = 1;;) {
        SteadyTime again;
        try {
            return attempt(tries);
        } catch (const Cancelled& error) {
            if (error.may_have_run() || !times.may_have_run) throw;
            throw Cancelled(error.code(), error.message(), error.data(),
                            std::string(error.what()) + " in this try, but an earlier one may have run");
        } catch (const RpcError& error) {
            again = next_try(error, options, times, tries);
        }
        if (again != kAtOnce) sleep_until(again, options.stop);
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
