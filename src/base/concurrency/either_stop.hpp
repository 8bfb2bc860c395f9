#pragma once

#include <stop_token>

namespace shared_tensor {

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
