#pragma once

#include <shared_tensor/function.hpp>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::runtime {

/// A call that another process runs. It runs on the thread of its connection, if a worker would take it at once: that
/// thread would only wait for the worker, which would only wait for the process.
class PassedOnCall : public BoundCall {
public:
    /// Before run(): no other caller can join this call, so it ends at this time.
    virtual void end_at(SteadyTime deadline) = 0;
};

}  // namespace shared_tensor::runtime
