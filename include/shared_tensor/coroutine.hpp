#pragma once

// Waits for a call in a coroutine, without holding a thread:
//
//     double sum = co_await co_call<double>(client, "add", 1, 2);                       // on a client's thread
//     double sum = co_await co_call<double>(client, "add", 1, 2).resume_on(executor);   // where `executor` resumes
//
// An executor is a callable that takes a std::coroutine_handle<> and resumes it once, at any time, on any thread:
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

/// A started call. One coroutine may wait for it, once.
///
/// The coroutine must not be destroyed while it waits. The end of the client resumes it with Cancelled. A call that no
/// coroutine waits for goes on.
template <class R>
class AwaitableCall {
public:
    using Executor = std::function<void(std::coroutine_handle<>)>;

    /// `executor` resumes the coroutine if it has to wait. It must not throw.
    AwaitableCall resume_on(Executor executor) && {
        state_->executor = std::move(executor);
        return std::move(*this);
    }

    bool await_ready() const noexcept { return state_->waiting.load(std::memory_order_acquire) == state_.get(); }
    /// Returns false if the answer has come since await_ready().
    bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
        void* nobody = nullptr;
        return state_->waiting.compare_exchange_strong(nobody, coroutine.address(), std::memory_order_acq_rel);
    }
    /// Throws the errors of Client::call().
    R await_resume() { return state_->answer.get(); }

private:
    template <class T, class... Args>
    friend AwaitableCall<T> co_call(const AsyncCaller& client, std::string_view method, const Args&... args);

    struct State {
        /// Null: no coroutine waits yet. The address of this State: the answer has come. Else the coroutine's address.
        std::atomic<void*> waiting{nullptr};
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

/// Starts a call; `args` are read before this returns. Without an executor, the coroutine resumes on a thread of the
/// client, which it should not block. Throws InvalidValue or std::invalid_argument for an argument that cannot be sent.
template <class R = void, class... Args>
AwaitableCall<R> co_call(const AsyncCaller& client, std::string_view method, const Args&... args) {
    auto state = std::make_shared<typename AwaitableCall<R>::State>();
    client.call_then<R>([state](std::future<R> answer) { state->finish(std::move(answer)); }, method, args...);
    return AwaitableCall<R>(std::move(state));
}

}  // namespace shared_tensor
