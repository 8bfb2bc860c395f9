#pragma once

// Calls functions without waiting: the results come as futures or to callbacks.
//
//     AsyncClient client({.client = {.url = "http://127.0.0.1:2537"}});
//     std::future<double> sum = client.call<double>("add", 1, 2);
//     client.call_then<double>([](std::future<double> sum) { use(sum.get()); }, "add", 3, 4);
//
//     AsyncTask<at::Tensor> task = client.submit<at::Tensor>("train", x);
//     task.on_progress([](const TaskStatus& status) { show(status.fraction); });

#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/client/task.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/error.hpp>

namespace shared_tensor {

struct AsyncOptions {
    ClientOptions client{};            ///< `connections` is raised to threads + 1
    std::size_t threads = 4;           ///< calls in flight at once; one more thread watches tasks if there are any
    std::size_t max_waiting = 10'000;  ///< calls that wait for a thread; more calls fail with ServerBusy
};

namespace client {
class AsyncCore;
struct WatchedTask;
}  // namespace client

namespace detail {

/// Receives the outcome of an asynchronous call. finish() is called once; if there is a result, after read().
class AsyncSlot : public ResultSlot {
public:
    virtual ~AsyncSlot() = default;
    virtual void finish(std::exception_ptr error) = 0;
};

template <class R>
class AsyncSlotOf final : public AsyncSlot {
public:
    explicit AsyncSlotOf(std::function<void(std::future<R>)> then = {}) : then_(std::move(then)) {}

    std::future<R> future() { return promise_.get_future(); }
    void read(const ValueReader& reader) override { result_.read(reader); }
    void finish(std::exception_ptr error) override {
        std::future<R> outcome;
        if (then_) outcome = future();
        if (error) {
            promise_.set_exception(error);
        } else if constexpr (std::is_void_v<R>) {
            promise_.set_value();
        } else {
            promise_.set_value(result_.take());
        }
        if (then_) then_(std::move(outcome));
    }

private:
    std::function<void(std::future<R>)> then_;
    std::promise<R> promise_;
    ResultOf<R> result_;
};

}  // namespace detail

/// The common base of all AsyncTask<R>. Thread safety: any thread may call any method; none waits for the server.
class AsyncTaskHandle {
public:
    /// Empty until the server has accepted the task.
    std::string id() const;

    /// Ends the task as soon as possible; its future then throws Cancelled, unless it had ended already.
    void cancel();

    /// Sets a callback for changes of the task. It runs on the client's thread that watches tasks; while it runs, the
    /// client's other tasks are not watched. It must not throw.
    void on_progress(std::function<void(const TaskStatus&)> report);

protected:
    explicit AsyncTaskHandle(std::shared_ptr<client::WatchedTask> task) : task_(std::move(task)) {}

private:
    std::shared_ptr<client::WatchedTask> task_;
};

/// A handle of a task in flight. The task goes on when the handle is destroyed.
template <class R>
class AsyncTask : public AsyncTaskHandle {
public:
    AsyncTask(std::shared_ptr<client::WatchedTask> task, std::future<R> result)
        : AsyncTaskHandle(std::move(task)), result_(std::move(result)) {}

    /// Becomes ready when the task has ended. You may move it out.
    std::future<R>& result() { return result_; }
    /// Blocks until the task has ended. Call it once.
    R get() { return result_.get(); }

private:
    std::future<R> result_;
};

/// Starts calls on an AsyncClient. Cheap to copy; calls after the client's end fail with Cancelled.
/// Arguments are read before the methods return: tensors are kept by reference, all else is copied.
/// CallOptions::stop ends a call that is in flight. CallOptions::timeout begins when the method is called. A call that
/// is stopped or late while it still waits for a thread ends when it gets one, and sends nothing.
class AsyncCaller {
public:
    template <class R = void, class... Args>
    std::future<R> call(std::string_view method, const Args&... args) const {
        auto slot = std::make_unique<detail::AsyncSlotOf<R>>();
        auto result = slot->future();
        start(method, detail::ArgumentsOf<Args...>(args...), std::move(slot));
        return result;
    }

    /// As call(), and fills in `receipt` before the future becomes ready: see Client::call(). `receipt` must live until
    /// then.
    template <class R = void, class... Args>
    std::future<R> call(Receipt& receipt, std::string_view method, const Args&... args) const {
        auto slot = std::make_unique<detail::AsyncSlotOf<R>>();
        auto result = slot->future();
        start(method, detail::ArgumentsOf<Args...>(args...), std::move(slot), &receipt);
        return result;
    }

    /// `then` gets a ready future, on a thread of the client; if the call cannot start, because max_waiting calls wait
    /// already or the client has ended, on this thread before call_then() returns. It may start more calls; it should
    /// not wait for them, and must not throw.
    template <class R = void, class... Args>
    void call_then(std::function<void(std::future<R>)> then, std::string_view method, const Args&... args) const {
        start(method, detail::ArgumentsOf<Args...>(args...), std::make_unique<detail::AsyncSlotOf<R>>(std::move(then)));
    }

    /// As call_then(), and fills in `receipt` before it calls `then`. `receipt` must live until then.
    template <class R = void, class... Args>
    void call_then(Receipt& receipt, std::function<void(std::future<R>)> then, std::string_view method,
                   const Args&... args) const {
        start(method, detail::ArgumentsOf<Args...>(args...), std::make_unique<detail::AsyncSlotOf<R>>(std::move(then)),
              &receipt);
    }

    /// Runs the call as a task in the server. A running task holds no thread of the client.
    template <class R = void, class... Args>
    AsyncTask<R> submit(std::string_view method, const Args&... args) const {
        auto slot = std::make_unique<detail::AsyncSlotOf<R>>();
        auto result = slot->future();
        return {start_task(method, detail::ArgumentsOf<Args...>(args...), std::move(slot)), std::move(result)};
    }

    /// Returns a caller on the same client with other options for its calls.
    AsyncCaller with(CallOptions options) const { return {core_, std::move(options)}; }

    ClientStatistics statistics() const;

protected:
    AsyncCaller(std::shared_ptr<client::AsyncCore> core, CallOptions options)
        : core_(std::move(core)), options_(std::move(options)) {}
    void start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
               Receipt* receipt = nullptr) const;
    std::shared_ptr<client::WatchedTask> start_task(std::string_view method, const CallArguments& arguments,
                                                    std::unique_ptr<detail::AsyncSlot> slot) const;

    std::shared_ptr<client::AsyncCore> core_;
    CallOptions options_;
};

/// A client with a fixed number of threads of its own.
///
/// Its destructor cancels: calls that wait for a thread, calls in flight and watched tasks fail with Cancelled. It
/// blocks until their callbacks have returned, so do not destroy the client in a callback. Tasks go on in the server.
class AsyncClient : public AsyncCaller {
public:
    /// A client of the server that the environment names (ClientOptions::url), with 4 threads.
    AsyncClient() : AsyncClient(AsyncOptions{}) {}
    /// Throws std::invalid_argument if the url is malformed or empty.
    explicit AsyncClient(std::string url);
    explicit AsyncClient(AsyncOptions options);
    AsyncClient(const AsyncClient&) = delete;
    AsyncClient& operator=(const AsyncClient&) = delete;
    ~AsyncClient();
};

}  // namespace shared_tensor
