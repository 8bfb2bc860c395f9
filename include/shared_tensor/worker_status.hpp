#pragma once

#include <cstddef>
#include <string>

#include <sys/types.h>

namespace shared_tensor {

/// The state of one worker process (<shared_tensor/processes.hpp>).
struct WorkerProcessStatus {
    std::string name{};        ///< ProcessOptions::name
    pid_t pid = 0;             ///< 0 while none runs
    bool ready = false;        ///< takes calls
    std::size_t calls = 0;     ///< in progress
    std::size_t restarts = 0;  ///< how often it was started again
    std::string last_end{};    ///< why the last one ended, for people; empty: none ended
};

}  // namespace shared_tensor
