#include "runtime/calls/execution.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <shared_tensor/detail/failure.hpp>

#include "base/log/crash.hpp"
#include "base/log/log.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/batches/batches.hpp"
#include "runtime/functions/function_table.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::runtime {

namespace {

/// Made in advance, because it is used when there is no memory.
const OutcomePointer kNotKept = make_outcome(json_rpc::out_of_memory("the result could not be kept"));

/// Logs an error text of which the caller gets only a part.
void log_details(const CallFailure& failure) {
    if (failure.details.empty()) return;
    std::string_view details = failure.details;
    details.remove_prefix(std::min(details.find_first_not_of('\n'), details.size()));
    const std::string message = "the function threw " + failure.type + ": " + failure.message;
    log::write({log::Level::info, message, {}, details});
}

}  // namespace

json_rpc::Error to_error(const CallFailure& failure) {
    switch (failure.kind) {
        case CallFailure::Kind::invalid_params:
            return json_rpc::invalid_params(failure.parameter, failure.expected, failure.got);
        case CallFailure::Kind::out_of_memory:
            return json_rpc::out_of_memory("the call needed more memory than there is; nothing else was harmed");
        case CallFailure::Kind::cancelled: return json_rpc::cancelled("the call was cancelled while it ran");
        case CallFailure::Kind::busy: return json_rpc::busy(std::chrono::seconds(1));
        case CallFailure::Kind::threw: break;
    }
    return json_rpc::function_failed(failure.type, failure.message, failure.traceback);
}

json_rpc::Error memory_failed() {
    return json_rpc::function_failed(
        "MemoryFault",
        "shared memory that this client may use failed while the call ran (SIGBUS: a page of it could not be read or "
        "written), so the result was dropped: send the tensors in new memory, or as bytes");
}

Execution::Execution(Setup setup)
    : setup_(std::move(setup)),
      name_(setup_.function->name()),
      caller_{setup_.owner.principal, setup_.owner.session, setup_.owner.task, setup_.owner.traceparent} {}

Execution::~Execution() = default;

bool Execution::begin() noexcept {
    begun_ = real_clock().now();
    try {
        Observers observers;  // those that come later see for themselves that it runs
        const bool mine = state_.with([&](State& state) {
            if (state.phase != Phase::waiting) return false;
            observers = state.observers;
            state.phase = Phase::running;
            return true;
        });
        if (!mine) return false;
        queue_ns_.store(std::chrono::nanoseconds(begun_ - made_).count(), std::memory_order_relaxed);
        for (const auto& observer : observers) {
            if (observer->started) observer->started();
        }
        return true;
    } catch (...) {
        finish(kNotKept);
        return false;
    }
}

void Execution::go(const std::function<void()>& returned) noexcept {
    end_with([&] {
        if (cancelled()) return make_outcome(json_rpc::cancelled("the call was cancelled before its function ran"));
        OutcomePointer outcome = invoke();
        if (returned) returned();
        return outcome;
    });
}

void Execution::end(codec::Value result) noexcept {
    end_with([&] { return outcome_of(std::move(result), std::nullopt); });
}

template <class Make>
void Execution::end_with(Make make) noexcept {
    try {
        OutcomePointer outcome = make();
        const auto took = std::chrono::nanoseconds(real_clock().now() - begun_);
        compute_ns_.store(took.count(), std::memory_order_relaxed);
        if (setup_.run_time != nullptr) setup_.run_time->note(took, outcome->failed(), queue_time());
        finish(std::move(outcome));
    } catch (...) {
        finish(kNotKept);
    }
    // The arguments may hold a body of gigabytes, and the function the last pointer to a model. Waiters and idempotency
    // keys keep this run, but need only the outcome.
    setup_.call.reset();
    setup_.function.reset();
    setup_.held.reset();
}

OutcomePointer Execution::invoke() {
    codec::Value value;
    tensor::WrappingPort port;
    codec::JsonSink sink(value, port);
    const CurrentCall current = as_current_call();
    have_signal_stack();
    const InCall in_call(current);
    const std::optional<CallFailure> failure = setup_.call->run(*this, ValueWriter(sink, sink.root()));
    return outcome_of(std::move(value), failure);
}

/// Call it after the last use of the arguments.
OutcomePointer Execution::outcome_of(codec::Value value, const std::optional<CallFailure>& failure) {
    own_what_stays(value);
    if (setup_.caller_memory.failed()) return make_outcome(memory_failed());
    if (failure) {
        log_details(*failure);
        return make_outcome(to_error(*failure));
    }
    if (!setup_.rows) return make_outcome(std::move(value));
    try {
        check_rows(value, *setup_.rows);
    } catch (const InvalidValue& error) {
        return make_outcome(json_rpc::function_failed("shared_tensor::InvalidValue", error.what(), {}));
    }
    return make_outcome(std::move(value));
}

/// Called before the outcome is set: after that the caller may reuse the memory that it lent. Destroys the arguments
/// first, so that lent memory that is still in use is memory that the function kept.
void Execution::own_what_stays(codec::Value& value) {
    if (setup_.lent == nullptr && !setup_.kept) return;
    if (setup_.lent != nullptr && !setup_.lent->in_use().empty()) setup_.call.reset();
    try {
        copied_ += tensor::own_result(value, setup_.lent.get(), setup_.kept);
    } catch (const std::bad_alloc&) {  // the result is lost, but memory that the function kept must still be taken over
        own_arguments();
        throw;
    }
}

void Execution::own_arguments() noexcept {
    try {
        if (setup_.lent != nullptr) copied_ += setup_.lent->take_over();
    } catch (const std::exception&) {
        shared_tensor::log::warn(caller_.principal,
                                 ": there is no memory for copies of the arguments of a call that goes on after its "
                                 "request was answered: its function may see what the client writes there later");
    }
}

void Execution::cancel(OutcomePointer outcome) {
    const auto never_ran = make_outcome(json_rpc::cancelled("the call was cancelled before it ran"));
    cancel_with([&](Phase phase) { return outcome == nullptr && phase == Phase::waiting ? never_ran : outcome; });
}

void Execution::stop_with_server() {
    const auto never_ran = make_outcome(json_rpc::shutting_down());
    const auto began = make_outcome(json_rpc::shutting_down(true));
    cancel_with([&](Phase phase) { return phase == Phase::waiting ? never_ran : began; });
}

/// `choose` gets the phase of a run that has not ended, and returns its outcome, or null: its function sets it.
template <class Choose>
void Execution::cancel_with(Choose choose) {
    bool unwanted = false;
    OutcomePointer outcome;
    Ended ended;
    state_.with([&](State& state) {
        if (state.phase == Phase::done) return;  // join() still works, and returns its outcome
        unwanted = state.unwanted = true;
        outcome = choose(state.phase);
        if (outcome != nullptr) ended = set_outcome(state, outcome);
    });
    if (unwanted) stop_.request_stop();
    state_.wake_all();  // sleep_until()
    tell(ended, outcome);
}

Execution::Ended Execution::set_outcome(State& state, OutcomePointer outcome) {
    Ended ended;
    if (state.phase == Phase::waiting) {
        ended.call = std::move(setup_.call);
        ended.function = std::move(setup_.function);
        ended.held = std::move(setup_.held);
    }
    state.phase = Phase::done;
    state.outcome = std::move(outcome);
    ended.observers = std::exchange(state.observers, {});
    ended.is_set = true;
    return ended;
}

/// Calls the observers, then wakes the waiters: a client that has its answer finds everything noted.
void Execution::tell(const Ended& ended, const OutcomePointer& outcome) {
    if (!ended.is_set) return;
    for (const auto& observer : ended.observers) {
        try {
            if (observer->done) observer->done(outcome);
        } catch (const std::exception& error) {  // no memory: the other observers must still be called
            log::error("an observer of the end of a call failed: ", error.what());
        }
    }
    state_.with([](State& state) { state.told = true; });
    ended_.store(true, std::memory_order_release);
    state_.notify_all();
}

void Execution::finish(OutcomePointer outcome) {
    Ended ended;
    state_.with([&](State& state) {
        if (state.phase != Phase::done) ended = set_outcome(state, outcome);
    });
    tell(ended, outcome);
}

std::uint64_t Execution::next_number() {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Execution::View Execution::view() const {
    View view;
    view.id = "c-" + std::to_string(number_);
    if (setup_.run_time != nullptr) view.function = setup_.run_time->function;
    view.principal = caller_.principal;
    view.task = caller_.task;
    view.age = real_clock().now() - made_;
    state_.with([&](const State& state) {
        view.running = state.phase == Phase::running;
        if (!state.reported) return;
        view.fraction = state.reported->fraction;
        view.message = state.reported->message;
    });
    return view;
}

OutcomePointer Execution::outcome() const { return state_.get(&State::outcome); }

void Execution::observe(Observer observer) {
    const auto shared = std::make_shared<const Observer>(std::move(observer));
    const auto [phase, outcome, reported] = state_.with([&](State& state) {
        if (state.phase != Phase::done) state.observers.push_back(shared);
        return std::tuple(state.phase, state.outcome, state.reported);
    });
    if (phase == Phase::running && shared->started) shared->started();
    if (phase == Phase::running && reported && shared->progress)
        shared->progress(reported->fraction, reported->message);
    if (phase == Phase::done && shared->done) shared->done(outcome);
}

std::unique_ptr<Execution::Waiter> Execution::join() {
    const bool joined = state_.with([](State& state) {
        if (!state.unwanted) ++state.waiters;
        return !state.unwanted;
    });
    return joined ? std::unique_ptr<Waiter>(new Waiter(shared_from_this())) : nullptr;
}

void Execution::drop_waiter() {
    const bool last = state_.with([](State& state) {
        if (--state.waiters > 0 || state.phase == Phase::done) return false;
        state.unwanted = true;  // nobody may join what is cancelled now
        return true;
    });
    if (last) cancel();
}

void Execution::progress(double fraction, std::string_view message) {
    const double clamped = std::isnan(fraction) ? 0.0 : std::clamp(fraction, 0.0, 1.0);
    const std::string shown = detail::bounded_text(message);
    const Observers told = state_.with([&](State& state) {
        state.reported = Report{clamped, shown};
        return state.observers;
    });
    for (const auto& observer : told) {
        if (observer->progress) observer->progress(clamped, shown);
    }
}

bool Execution::sleep_until(SteadyTime time) const {
    auto access = state_.lock();
    return !access.wait_until(time, [this](const State&) { return cancelled(); });
}

void Execution::log(LogLevel level, std::string_view text) const {
    using shared_tensor::log::Level;
    constexpr Level kLevels[] = {Level::debug, Level::info, Level::warn, Level::error};
    const CurrentCall own = as_current_call();
    const InCall in_call(current_call != nullptr ? *current_call : own);  // threads of the function have none
    shared_tensor::log::write(kLevels[static_cast<std::size_t>(level)], text);
}

Execution::Waiter::~Waiter() { execution_->drop_waiter(); }

OutcomePointer Execution::Waiter::known() const {
    return execution_->state_.with([](const State& state) { return state.told ? state.outcome : nullptr; });
}

OutcomePointer Execution::Waiter::wait_until(SteadyTime deadline) {
    const RunTime* run_time = execution_->setup_.run_time.get();
    if (run_time != nullptr && run_time->brief())
        spin_until([this] { return execution_->ended_.load(std::memory_order_acquire) || abandoned(); });
    auto access = execution_->state_.lock();
    const auto ready = [this](const State& state) { return state.told || abandoned(); };
    if (deadline == SteadyTime::max()) {
        access.wait(ready);
    } else {
        access.wait_until(deadline, ready);
    }
    return access->outcome;
}

void Execution::Waiter::abandon() {
    abandoned_.store(true);
    execution_->state_.wake_all();
}

}  // namespace shared_tensor::runtime
