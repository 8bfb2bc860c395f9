#pragma once

#include <chrono>
#include <cstddef>

#include "http/input_buffer.hpp"
#include "http/wire.hpp"

namespace shared_tensor::http {

/// How long a body may take: until one deadline, or as long as it keeps moving.
class BodyClock {
public:
    static BodyClock until(std::chrono::steady_clock::time_point deadline);
    static BodyClock keep_moving(std::chrono::milliseconds stall, std::size_t min_bytes_per_second);

    void moved(std::size_t bytes);
    std::chrono::steady_clock::time_point deadline() const;

private:
    explicit BodyClock(Pace pace) : pace_(pace) {}
    bool paced_ = false;
    std::chrono::steady_clock::time_point fixed_{};
    Pace pace_;
};

enum class ReadFailure {
    none,
    late,   ///< the clock ran out
    ended,  ///< the peer closed in order
    gone,   ///< reset or cut
};

/// Up to `size` bytes as soon as some are there, first from `input`, then straight from the socket. 0 with `failure`
/// set when none come.
std::size_t read_some(Wire& wire, InputBuffer& input, char* to, std::size_t size, BodyClock& clock,
                      ReadFailure& failure);

}  // namespace shared_tensor::http
