#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace shared_tensor {

/// Calls `sweep` every `period` on a thread of its own until destroyed. `sweep` should not throw; exceptions are
/// logged.
class Maintenance {
public:
    Maintenance(const std::string& thread_name, std::chrono::milliseconds period, std::function<void()> sweep);

private:
    std::jthread thread_;  // its destructor asks it to stop and joins
};

}  // namespace shared_tensor
