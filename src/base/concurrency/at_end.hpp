#pragma once

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

}  // namespace shared_tensor
