#include "http/body_clock.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>

namespace shared_tensor::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLingerAtMost{20};  // see Wire::set_linger; what a blocking read may overshoot

}  // namespace

BodyClock BodyClock::until(Clock::time_point deadline) {
    BodyClock clock(Pace({}, {}, 0));
    clock.fixed_ = deadline;
    return clock;
}

BodyClock BodyClock::keep_moving(std::chrono::milliseconds stall, std::size_t min_bytes_per_second) {
    BodyClock clock(Pace(Clock::now(), stall, min_bytes_per_second));
    clock.paced_ = true;
    return clock;
}

void BodyClock::moved(std::size_t bytes) {
    if (paced_) pace_.moved(bytes, Clock::now());
}

Clock::time_point BodyClock::deadline() const { return paced_ ? pace_.deadline() : fixed_; }

std::size_t read_some(Wire& wire, InputBuffer& input, char* to, std::size_t size, BodyClock& clock,
                      ReadFailure& failure) {
    if (!input.empty()) {
        const std::size_t there = std::min(size, input.size());
        std::memcpy(to, input.view().data(), there);
        input.consume(there);
        return there;
    }
    while (true) {
        // One system call where the bytes come soon; where time is short, or they do not, the exact wait of ppoll.
        const auto deadline = clock.deadline();
        const bool short_of_time = deadline - Clock::now() < kLingerAtMost;
        const WireResult got = wire.read(to, size, short_of_time ? Wire::Wait::none : Wire::Wait::linger);
        if (got.status == WireStatus::ok) {
            clock.moved(got.bytes);
            return got.bytes;
        }
        if (got.status != WireStatus::again) {
            failure = got.status == WireStatus::end ? ReadFailure::ended : ReadFailure::gone;
            return 0;
        }
        if (wait_ready(wire.fd(), POLLIN, deadline) == 0) {
            failure = ReadFailure::late;
            return 0;
        }
    }
}

}  // namespace shared_tensor::http
