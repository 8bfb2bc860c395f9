#pragma once

// Waiting for a call in a coroutine, without holding a thread:
//
//     double sum = co_await co_call<double>(client, "add", 1, 2);                       // goes on on a thread of the
//     client double sum = co_await co_call<double>(client, "add", 1, 2).resume_on(executor);   // goes on where
//     `executor` says
//
// An executor is anything that is called with a std::coroutine_handle<> and resumes it once, at any time, on any
// thread:
// `[&](auto waiting) { boost::asio::post(pool, waiting); }`.

#include <atomic>
#include <coroutine>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <utility>

#include <shared_tensor/async_client.hpp>

namespace shared_tensor {

/// A call that has been started, for one coroutine to wait for, once.
///
/// The coroutine must not be destroyed while it waits. The end of the client resumes it with Cancelled; a call that is
/// not waited for goes on.
template <class R>
class AwaitableCall {
public:
    using Executor = std::function<void(std::coroutine_handle<>)>;

    /// Where the coroutine goes on if it has to wait. It must not throw.
    AwaitableCall resume_on(Executor executor) && {
        state_->executor = std::move(executor);
        return std::move(*this);
    }

    bool await_ready() const noexcept { return state_->waiting.load(std::memory_order_acquire) == state_.get(); }
    /// False where the answer came meanwhile.
    bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
        void* nobody = nullptr;
        return state_->waiting.compare_exchange_strong(nobody, coroutine.address(), std::memory_order_acq_rel);
    }
    /// Throws as Client::call() does.
    R await_resume() { return state_->answer.get(); }

private:
    template <class T, class... Args>
    friend AwaitableCall<T> co_call(const AsyncCaller& client, std::string_view method, const Args&... args);

    struct State {
        std::atomic<void*> waiting{nullptr};  ///< null: no coroutine yet; its address; this state: the answer is there
        std::future<R> answer{};
        Executor executor{};

        void finish(std::future<R> ready) {
            answer = std::move(ready);
            void* const coroutine = waiting.exchange(this, std::memory_order_acq_rel);
            if (coroutine == nullptr) return;
            const auto handle = std::coroutine_handle<>::from_address(coroutine);
            if (executor) {
                executor(handle);
            } else {
                handle.resume();
            }
        }
    };

    explicit AwaitableCall(std::shared_ptr<State> state) : state_(std::move(state)) {}

    std::shared_ptr<State> state_;
};

/// Starts the call at once; `args` are taken before this returns. Without an executor the coroutine goes on on a thread
/// of the client's, where it should not block. Throws InvalidValue or std::invalid_argument for an argument that cannot
/// be sent.
template <class R = void, class... Args>
AwaitableCall<R> co_call(const AsyncCaller& client, std::string_view method, const Args&... args) {
    auto state = std::make_shared<typename AwaitableCall<R>::State>();
    client.call_then<R>([state](std::future<R> answer) { state->finish(std::move(answer)); }, method, args...);
    return AwaitableCall<R>(std::move(state));
}

}  // namespace shared_tensor
