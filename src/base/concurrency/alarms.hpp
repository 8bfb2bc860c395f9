#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor {

/// A thread that calls what is due. Made for alarms that are nearly always taken back before they ring: add() and
/// remove() cost a lock, and wake the thread only if it would sleep for too long.
/// Thread safety: all methods from any thread, except the destructor.
class Alarms {
public:
    /// Lives until remove() at least.
    class Alarm {
    public:
        virtual ~Alarm() = default;
        /// Called on the thread of the alarms, without a lock, when the alarm is due. It should not block for long:
        /// other alarms wait meanwhile. Returns when to call it next; SteadyTime::max(): only after ring_now().
        virtual SteadyTime ring(SteadyTime now) noexcept = 0;

    private:
        friend class Alarms;
        SteadyTime due_{};
    };

    explicit Alarms(const std::string& thread_name);
    /// All alarms were removed.
    ~Alarms();
    Alarms(const Alarms&) = delete;
    Alarms& operator=(const Alarms&) = delete;

    void add(Alarm& alarm, SteadyTime due);
    /// Makes an alarm that was added due now, also if it rings at this moment. Does not wait.
    void ring_now(Alarm& alarm);
    /// Blocks while the alarm rings. No further ring begins meanwhile or afterwards, even if the alarm is due again.
    void remove(Alarm& alarm);

private:
    struct State {
        std::vector<Alarm*> alarms;
        const Alarm* ringing = nullptr;
        SteadyTime wakes_at = SteadyTime::max();  ///< when the thread looks next
        std::size_t idle_looks = 0;               ///< looks since the last add()
        bool woken = false, closing = false;
    };
    void serve();
    Alarm* wait_for_due();
    static Alarm* first_of(const State& state);

    Guarded<State> state_;
    std::jthread thread_;
};

}  // namespace shared_tensor
