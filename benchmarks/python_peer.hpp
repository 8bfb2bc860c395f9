#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// A peer in Python (python_peers.py), in its own processes. Each round() makes one hand-over, which the peer times
/// itself.
class PythonPeer {
public:
    /// `role` is torch, ray or flight. Null if Python or the peer's package is missing.
    static std::shared_ptr<PythonPeer> start(const std::string& python, const std::string& role, std::size_t size);
    ~PythonPeer();
    PythonPeer(const PythonPeer&) = delete;
    PythonPeer& operator=(const PythonPeer&) = delete;

    /// `what` is "first" or "all"; for flight "take", "give" or "both". Returns microseconds. Throws if the peer has
    /// ended.
    double round(const std::string& what);

private:
    PythonPeer(pid_t pid, int to, int from) : pid_(pid), to_(to), from_(from) {}

    pid_t pid_;
    int to_, from_;
};

}  // namespace bench
