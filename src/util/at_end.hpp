#pragma once

#include <utility>

namespace shared_tensor {

/// Runs when it goes, whatever happens. `run` must not throw.
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
