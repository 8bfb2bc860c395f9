#include "cli/progress_bar.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace shared_tensor::cli {

namespace {

constexpr std::size_t kCells = 30;

std::size_t terminal_width() {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/// Removes control characters, which would control the terminal: the text comes from the function.
std::string printable(const std::string& text) {
    std::string result = text;
    std::replace_if(
        result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    return result;
}

}  // namespace

std::string bar_text(const TaskStatus& status, std::size_t width) {
    std::string text;
    if (status.fraction) {
        const double fraction = std::clamp(*status.fraction, 0.0, 1.0);
        const auto full = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(kCells)));
        const std::string percent = std::to_string(std::lround(fraction * 100));
        text = "[" + std::string(full, '#') + std::string(kCells - full, ' ') + "] " +
               std::string(3 - std::min<std::size_t>(3, percent.size()), ' ') + percent + " %  ";
    } else {
        text = std::string(to_string(status.state)) + "  ";
    }
    text += printable(status.message);
    std::size_t end = std::min(text.size(), width);
    while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;  // do not cut a UTF-8 character in two
    return text.substr(0, end);
}

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(const TaskStatus& status) {
    if (!is_terminal_ || status.ended()) return;
    std::cerr << "\r\x1b[K" << bar_text(status, terminal_width() - 1) << std::flush;
    is_drawn_ = true;
}

void ProgressBar::clear() {
    if (is_drawn_) std::cerr << "\r\x1b[K" << std::flush;
    is_drawn_ = false;
}

}  // namespace shared_tensor::cli
