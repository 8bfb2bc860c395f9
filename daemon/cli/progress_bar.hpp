#pragma once

#include <string>

#include <shared_tensor/client/task.hpp>

namespace shared_tensor::cli {

/// "[#########           ]  45 %  sleeping", cut to `width` bytes.
std::string bar_text(const TaskStatus& status, std::size_t width);

/// A line on standard error with the progress of a task. Shows nothing if standard error is not a terminal.
class ProgressBar {
public:
    ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    ~ProgressBar() { clear(); }

    void show(const TaskStatus& status);
    void clear();

private:
    bool is_terminal_;
    bool is_drawn_ = false;
};

}  // namespace shared_tensor::cli
