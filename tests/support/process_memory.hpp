#pragma once

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace shared_tensor::test {

/// Returns the value of a line of /proc/PID/status, such as "VmRSS", in bytes.
inline std::uint64_t memory_of(pid_t pid, const std::string& line) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string text; std::getline(status, text);) {
        if (text.starts_with(line + ':')) return std::stoull(text.substr(line.size() + 1)) << 10;
    }
    throw std::runtime_error("/proc has no " + line);
}

inline std::uint64_t resident_bytes(pid_t pid) { return memory_of(pid, "VmRSS"); }

/// Returns the peak of the resident memory since reset_peak().
inline std::uint64_t peak_bytes(pid_t pid) { return memory_of(pid, "VmHWM"); }
inline void reset_peak(pid_t pid) { std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << 5; }

}  // namespace shared_tensor::test
