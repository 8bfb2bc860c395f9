#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// A peer that is written in Python (python_peers.py), in processes of its own: one hand-over for each round that it is
/// asked for, timed by itself.
class PythonPeer {
public:
    /// `role` is torch or ray. Null where Python, or the peer's package, is not there.
    static std::shared_ptr<PythonPeer> start(const std::string& python, const std::string& role, std::size_t size);
    ~PythonPeer();
    PythonPeer(const PythonPeer&) = delete;
    PythonPeer& operator=(const PythonPeer&) = delete;

    /// "first" or "all". Microseconds. Throws when the peer has ended.
    double round(const std::string& what);

private:
    PythonPeer(pid_t pid, int to, int from) : pid_(pid), to_(to), from_(from) {}

    pid_t pid_;
    int to_, from_;
};

}  // namespace bench
