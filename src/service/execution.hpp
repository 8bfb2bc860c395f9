#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/function.hpp>
#include <shared_tensor/stream.hpp>

#include "codec/lent_memory.hpp"
#include "service/outcome.hpp"
#include "service/run_time.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/memory_faults.hpp"

namespace shared_tensor::service {

/// Who a call is made for; owned by its execution.
struct CallOwner {
    std::string principal;
    std::string session;
    std::string task;
    std::string request{};  ///< its JSON-RPC id, for the log
};

/// Makes a tensor that a function yields countable; src/tensor gives it.
using WrapTensor = codec::TensorPointer (*)(const TensorRef&);

/// Copies what a call leaves behind in memory that clients can write to; src/tensor gives it (tensor::own_result).
using OwnResult = std::uint64_t (*)(codec::Value& result, const codec::LentForCall* lent, bool kept);

/// One run of a shared function: owns its arguments, its cancellation token and its outcome. Waiters (connections, a
/// task, joined equal calls) come and go; when the last one is gone the run is cancelled.
///
/// Shared by the worker that runs it and everybody who waits. Thread safety: all methods from any thread; run() once.
class Execution final : public std::enable_shared_from_this<Execution>, private Context {
public:
    struct Setup {
        std::shared_ptr<const SharedFunction> function;
        std::unique_ptr<BoundCall> call;
        CallOwner owner;
        SteadyTime deadline = SteadyTime::max();
        WrapTensor wrap = nullptr;
        std::shared_ptr<RunTime> run_time = nullptr;  ///< of all runs of the function; null: waiters sleep at once
        const detail::CallMemory* memory = nullptr;   ///< outlives the execution; null: none is shared
        std::shared_ptr<detail::CallStreams> streams = nullptr;  ///< of a function that takes some
        FaultWatch caller_memory{};                              ///< of the memory that the arguments may lie in
        OwnResult own_result = nullptr;
        std::shared_ptr<codec::LentForCall> lent = nullptr;  ///< with its arguments and items; null: nothing
        bool kept = false;  ///< others than its caller get the result, or its caller gets it again
    };
    explicit Execution(Setup setup);
    ~Execution() override;

    /// Runs the user's code on this thread unless it was cancelled before.
    void run() noexcept;

    /// Sets the token. A run that has not begun ends at once with -32004; one that runs ends when its code returns,
    /// or, given an outcome, at once with that: whoever waits does not wait for code that is not wanted any more.
    void cancel(OutcomePointer outcome = nullptr);
    /// Its caller is about to be answered though the function may still run: what the caller writes from then on to
    /// memory that it lent is not seen. Copies what is still used of it.
    void own_arguments() noexcept;
    /// How many bytes were copied because the call left something behind, or was left behind, since this was last
    /// asked.
    std::uint64_t take_copied() { return copied_.exchange(0, std::memory_order_relaxed); }
    /// Ends it without running (refused by the queue, shut down). The first outcome stays.
    void finish(OutcomePointer outcome);

    OutcomePointer outcome() const;  ///< null until it is done
    /// How long the function ran; zero until it has ended, and for what never ran.
    std::chrono::nanoseconds compute_time() const {
        return std::chrono::nanoseconds(compute_ns_.load(std::memory_order_relaxed));
    }

    /// How long it waited to run; zero for what never ran.
    std::chrono::nanoseconds queue_time() const {
        return std::chrono::nanoseconds(queue_ns_.load(std::memory_order_relaxed));
    }

    /// Who is told of a run as it goes; each function may be empty. Called on the thread where it happens, must not
    /// block.
    struct Observer {
        std::function<void()> started;
        std::function<void(double fraction, std::string_view message)> progress;
        std::function<void(const OutcomePointer&)> done;  ///< once
    };
    /// What has happened already is told at once, here.
    void observe(Observer observer);
    /// Called once when the run is not wanted any more, before it began or while it runs. Set before anybody else has
    /// it.
    void on_cancelled(std::function<void()> cancelled) { cancelled_hook_ = std::move(cancelled); }

    /// One reader of the outcome. Leaving it behind (destruction, give_up) is what "nobody wants it" is counted by.
    class Waiter {
    public:
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

        /// Blocks until the outcome, the deadline or give_up(); null for the last two.
        OutcomePointer wait_until(SteadyTime deadline);
        /// From any thread: wait_until returns at once.
        void give_up();
        bool gave_up() const { return gave_up_.load(); }
        const std::shared_ptr<Execution>& execution() const { return execution_; }

    private:
        friend class Execution;
        explicit Waiter(std::shared_ptr<Execution> execution) : execution_(std::move(execution)) {}
        std::shared_ptr<Execution> execution_;
        std::atomic<bool> gave_up_{false};
    };
    /// Null when the run was given up already: its outcome would be the cancellation of others.
    std::unique_ptr<Waiter> join();

private:
    enum class Phase { waiting, running, done };
    struct Report {
        double fraction;
        std::string message;
    };
    struct State {
        Phase phase = Phase::waiting;
        std::size_t waiters = 0;
        bool unwanted = false;  ///< cancelled: nobody may join any more
        OutcomePointer outcome;
        std::optional<Report> reported;  ///< the last progress, for observers that come after it
        std::vector<std::shared_ptr<const Observer>> observers;
    };

    using Observers = std::vector<std::shared_ptr<const Observer>>;

    void drop_waiter();
    struct Ended {
        Observers observers;
        std::unique_ptr<BoundCall> call;                 ///< of one that will never run; these go without the lock
        std::shared_ptr<const SharedFunction> function;  ///< likewise
    };
    Ended end(State& state, OutcomePointer outcome);
    static void tell(const Ended& ended, const OutcomePointer& outcome);
    OutcomePointer invoke();
    void own_what_stays(codec::Value& value);
    std::vector<std::shared_ptr<const Observer>> observers() const;

    void progress(double fraction, std::string_view message) override;
    bool cancelled() const override { return cancelled_.load(std::memory_order_relaxed); }
    bool sleep_until(SteadyTime time) const override;
    SteadyTime deadline() const override { return setup_.deadline; }
    const Caller& caller() const override { return caller_; }
    void log(LogLevel level, std::string_view text) const override;
    const detail::CallMemory* memory() const override { return setup_.memory; }
    detail::CallStreams* streams() const override { return setup_.streams.get(); }

    Setup setup_;
    Caller caller_;
    std::function<void()> cancelled_hook_;
    const SteadyTime made_ = real_clock().now();
    std::atomic<std::int64_t> queue_ns_{0}, compute_ns_{0};
    std::atomic<std::uint64_t> copied_{0};
    std::atomic<bool> cancelled_{false};
    std::atomic<bool> ended_{false};  ///< the outcome is there: what a waiter looks for before it sleeps
    mutable Guarded<State> state_;
};

}  // namespace shared_tensor::service
