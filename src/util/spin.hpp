#pragma once

namespace shared_tensor {

/// Waking a thread that sleeps costs up to some 50 us where its core idles meanwhile, more than a small call. Whoever
/// expects its word soon looks for it before it sleeps: for about what two such wakes cost, since between two calls of
/// one client lie its own wake and ours.
inline constexpr int kSpinUs = 100;

/// Where the process has one core only, looking again makes sense only for what the next threads in line do.
/// Elsewhere until kSpinUs are over. One object per wait.
class Spin {
public:
    Spin();
    /// Gives the core to whoever wants it; false when it is time to sleep.
    bool again();

private:
    long long end_ns_;
    int left_;
};

/// Whether `ready()` came to hold; it must be cheap. Takes about kSpinUs at most.
template <class Ready>
bool spin_until(Ready ready) {
    Spin spin;
    do {
        if (ready()) return true;
    } while (spin.again());
    return ready();
}

}  // namespace shared_tensor
