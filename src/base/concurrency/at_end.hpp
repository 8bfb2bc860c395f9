#pragma once

#include <stop_token>
#include <utility>

namespace shared_tensor {

/// Runs `run` in its destructor, on every way out of the scope. `run` must not throw.
template <class Run>
class AtEnd {
public:
    explicit AtEnd(Run run) : run_(std::move(run)) {}
    AtEnd(const AtEnd&) = delete;
    AtEnd& operator=(const AtEnd&) = delete;
    ~AtEnd() { run_(); }

private:
    Run run_;
};

/// A stop that is requested as soon as one of two others is. Thread safety: token() from any thread.
class EitherStop {
public:
    EitherStop(const std::stop_token& first, const std::stop_token& second)
        : by_first_(first, Forward{either_}), by_second_(second, Forward{either_}) {}
    EitherStop(const EitherStop&) = delete;
    EitherStop& operator=(const EitherStop&) = delete;

    std::stop_token token() const { return either_.get_token(); }

private:
    struct Forward {
        std::stop_source to;
        void operator()() noexcept { to.request_stop(); }
    };

    std::stop_source either_;
    std::stop_callback<Forward> by_first_, by_second_;
};

}  // namespace shared_tensor
