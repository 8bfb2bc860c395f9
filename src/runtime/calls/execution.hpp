#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <shared_tensor/function.hpp>
#include <shared_tensor/stream.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/current_call.hpp"
#include "base/memory/memory_faults.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/calls/outcome.hpp"

namespace shared_tensor::runtime {

/// The caller for whom a function runs; the execution has its own copy.
struct CallOwner {
    std::string principal;
    std::string session;
    std::string task;
    std::string id{};  ///< its JSON-RPC id as text; for the log, as the next three
    std::string request_id{}, traceparent{}, parent_span{};
};

class RunTime;

/// One run of a shared function. Owns its arguments, its cancellation token and its outcome. Waiters (connections, a
/// task, equal calls that joined) come and go. When the last waiter is gone, the run is cancelled.
///
/// Shared by the worker that runs it and by all waiters. Thread safety: all methods from any thread; run() once.
class Execution final : public std::enable_shared_from_this<Execution>, private Context {
public:
    struct Setup {
        std::shared_ptr<const FunctionRecord> function;
        std::unique_ptr<BoundCall> call;
        CallOwner owner;
        SteadyTime deadline = SteadyTime::max();
        std::shared_ptr<RunTime> run_time = nullptr;  ///< of all runs of the function; null: waiters never spin
        const detail::CallMemory* memory = nullptr;   ///< outlives the execution; null: no shared memory
        std::shared_ptr<detail::CallStreams> streams = nullptr;  ///< if the function takes streams
        FaultWatch caller_memory{};                              ///< watches memory that the arguments may lie in
        std::shared_ptr<codec::LentForCall> lent = nullptr;      ///< for its arguments and items; null: nothing
        std::shared_ptr<const void> held = nullptr;              ///< a share of a limit, as long as it has arguments
        bool kept = false;                      ///< other callers get the result too, or its caller gets it again
        std::optional<std::int64_t> rows = {};  ///< the result must have so many, because the function is batched
    };
    explicit Execution(Setup setup);
    ~Execution() override;

    /// Runs the function on this thread, unless the run was cancelled before. `returned`, if given, is called when the
    /// function has returned, before anybody is told.
    void run(const std::function<void()>& returned = {}) noexcept {
        if (begin()) go(returned);
    }
    /// The two steps of run(), for a run whose result may come from a joined run: begin() returns false if the run was
    /// cancelled or has begun. After it, call either go(), which runs the function, or end().
    bool begin() noexcept;
    void go(const std::function<void()>& returned = {}) noexcept;
    void end(codec::Value result) noexcept;

    /// Sets the cancellation token. A run that has not begun ends at once, with `outcome` or with -32004. A run that
    /// has begun ends when its function returns; with an `outcome` it ends at once, so that waiters do not wait for a
    /// function whose result is not wanted.
    void cancel(OutcomePointer outcome = nullptr);
    /// As cancel(), with -32009, which says whether the run had begun.
    void stop_with_server();
    /// Call it before the caller is answered while the function may still run. Takes over the memory that the caller
    /// lent and that is still in use, so that the function does not see what the caller writes there later.
    void own_arguments() noexcept;
    /// Returns how many bytes were copied since the last call of this method, so that neither the result nor a function
    /// that goes on uses memory that clients can write to.
    std::uint64_t take_copied() { return copied_.exchange(0, std::memory_order_relaxed); }
    /// Ends the run, also if it never began (rejected by the queue, shutdown, cached result). A run that has an outcome
    /// keeps it.
    void finish(OutcomePointer outcome);

    const Caller& caller() const override { return caller_; }
    /// For the log. Its views live as long as the execution.
    CurrentCall as_current_call() const {
        const CallOwner& owner = setup_.owner;
        return {name_, owner.principal, owner.request_id, owner.id, owner.task, owner.traceparent, owner.parent_span};
    }
    SteadyTime deadline() const override { return setup_.deadline; }
    bool is_kept() const { return setup_.kept; }
    void progress(double fraction, std::string_view message) override;
    std::stop_token stop_token() const override { return stop_.get_token(); }

    /// What operators see of a run that has not ended.
    struct View {
        std::string id, function, principal, task;
        bool running = false;  ///< else it waits in the queue
        std::chrono::nanoseconds age{};
        std::optional<double> fraction{};  ///< of the progress that it reported
        std::string message{};
    };
    View view() const;

    OutcomePointer outcome() const;  ///< null until the run has ended; observers may not know it yet
    /// How long the function ran; zero until it has ended, and if it never ran.
    std::chrono::nanoseconds compute_time() const {
        return std::chrono::nanoseconds(compute_ns_.load(std::memory_order_relaxed));
    }

    /// How long the run waited before it began; zero if it never began.
    std::chrono::nanoseconds queue_time() const {
        return std::chrono::nanoseconds(queue_ns_.load(std::memory_order_relaxed));
    }

    /// Callbacks for the events of a run; each may be empty. They are called on the thread where the event happens, and
    /// must not block. Waiters get the outcome when all observers of the end have returned.
    struct Observer {
        std::function<void()> started;
        std::function<void(double fraction, std::string_view message)> progress;
        std::function<void(const OutcomePointer&)> done;  ///< once
    };
    /// Events that have already happened are reported at once, on this thread.
    void observe(Observer observer);
    /// `cancelled` is called once if the run is cancelled, before it begins or while it runs. Set it before other
    /// threads have the execution.
    void on_cancelled(std::function<void()> cancelled) {
        on_cancelled_.emplace(stop_.get_token(), std::move(cancelled));
    }

    /// One reader of the outcome. The run is cancelled when its last Waiter is destroyed.
    class Waiter {
    public:
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

        /// The outcome, if wait_until() would return it at once; else null.
        OutcomePointer known() const;
        /// Blocks until there is an outcome, the deadline is over, or abandon() was called. Returns null if there is no
        /// outcome.
        OutcomePointer wait_until(SteadyTime deadline);
        /// Makes wait_until() return at once. Any thread may call it.
        void abandon();
        bool abandoned() const { return abandoned_.load(); }
        const std::shared_ptr<Execution>& execution() const { return execution_; }

    private:
        friend class Execution;
        explicit Waiter(std::shared_ptr<Execution> execution) : execution_(std::move(execution)) {}
        std::shared_ptr<Execution> execution_;
        std::atomic<bool> abandoned_{false};
    };
    /// Adds a waiter. Returns null if the run was cancelled: then its outcome may be the cancellation by other waiters.
    std::unique_ptr<Waiter> join();

private:
    enum class Phase { waiting, running, done };
    using Observers = std::vector<std::shared_ptr<const Observer>>;
    struct Report {
        double fraction;
        std::string message;
    };
    struct State {
        Phase phase = Phase::waiting;
        std::size_t waiters = 0;
        bool unwanted = false;  ///< cancelled: join() returns null
        OutcomePointer outcome;
        bool told = false;               ///< the observers know the outcome; then the waiters get it
        std::optional<Report> reported;  ///< the last progress, for observers that are added later
        Observers observers;
    };

    static std::uint64_t next_number();
    void drop_waiter();
    template <class Choose>
    void cancel_with(Choose choose);
    struct Ended {
        bool is_set = false;  ///< this thread set the outcome
        Observers observers;
        std::unique_ptr<BoundCall> call;                 ///< of a run that never began; destroyed without the lock
        std::shared_ptr<const FunctionRecord> function;  ///< the same
        std::shared_ptr<const void> held;                ///< the same
    };
    Ended set_outcome(State& state, OutcomePointer outcome);
    void tell(const Ended& ended, const OutcomePointer& outcome);
    template <class Make>
    void end_with(Make make) noexcept;
    OutcomePointer invoke();
    OutcomePointer outcome_of(codec::Value value, const std::optional<CallFailure>& failure);
    void own_what_stays(codec::Value& value);

    bool cancelled() const override { return stop_.stop_requested(); }
    bool sleep_until(SteadyTime time) const override;
    void log(LogLevel level, std::string_view text) const override;
    const detail::CallMemory* memory() const override { return setup_.memory; }
    void add_copied(std::uint64_t bytes) override { copied_.fetch_add(bytes, std::memory_order_relaxed); }
    detail::CallStreams* streams() const override { return setup_.streams.get(); }

    const std::uint64_t number_ = next_number();  ///< tells runs apart
    Setup setup_;
    const std::string name_;  ///< of the function
    Caller caller_;
    std::stop_source stop_;
    const SteadyTime made_ = real_clock().now();
    SteadyTime begun_{};
    std::atomic<std::int64_t> queue_ns_{0}, compute_ns_{0};
    std::atomic<std::uint64_t> copied_{0};
    std::atomic<bool> ended_{false};  ///< State::told; a waiter checks this before it sleeps
    mutable Guarded<State> state_;
    std::optional<std::stop_callback<std::function<void()>>> on_cancelled_;
};

}  // namespace shared_tensor::runtime
