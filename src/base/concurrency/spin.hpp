#pragma once

namespace shared_tensor {

/// To wake a sleeping thread costs up to about 50 us if its core became idle, which is more than a small call costs. So
/// a thread that expects a message soon spins before it sleeps. It spins for about two wake-ups, since between two
/// calls of a client its thread wakes once and ours wakes once.
inline constexpr int kSpinUs = 100;

/// One object per wait. If the process has one core, it yields only a few times, enough for the next threads in line.
/// Otherwise it spins until kSpinUs are over.
class Spin {
public:
    Spin();
    /// Yields the core to another thread. False when it is time to sleep.
    bool again();

private:
    long long end_ns_;
    int left_;
};

/// Whether `ready()` became true within about kSpinUs. `ready` must be cheap.
template <class Ready>
bool spin_until(Ready ready) {
    Spin spin;
    do {
        if (ready()) return true;
    } while (spin.again());
    return ready();
}

}  // namespace shared_tensor
