#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <thread>

#include <shared_tensor/client/stream_call.hpp>
#include <shared_tensor/function.hpp>

#include "base/concurrency/guarded.hpp"
#include "tensor/any_value.hpp"

namespace shared_tensor::processes {

using tensor::AnyValue;

/// Threads that pass items or a cancellation from a caller to a worker process. A thread ends soon after its call is
/// over, when the caller's stream is closed, so the call does not wait for it.
/// Thread safety: start() from any thread.
class Pumps {
public:
    /// `work` must not throw. Throws std::system_error if no thread can be started.
    void start(std::function<void()> work);

private:
    struct Pump {
        std::atomic<bool> is_done{false};
        std::jthread thread{};
    };
    Guarded<std::list<Pump>> pumps_;
};

/// Passes the items of all streams of a call on, in both directions, and returns the call's result. Blocks until the
/// call is over. Throws the errors of `call`.
AnyValue pass_streams(StreamCall<AnyValue> call, const FunctionRecord& function, const Context& context, Pumps& pumps);

}  // namespace shared_tensor::processes
