#include "base/log/log.hpp"

#include <array>
#include <atomic>
#include <stdexcept>

#include "base/log/log_queue.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warn", "error", "off"};

std::atomic<Level>& threshold() {
    static std::atomic<Level> level{Level::info};
    return level;
}

}  // namespace

void set_level(Level level) { threshold().store(level, std::memory_order_relaxed); }
Level level() { return threshold().load(std::memory_order_relaxed); }

Level parse_level(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == name) return static_cast<Level>(i);
    }
    throw std::invalid_argument("unknown log level \"" + std::string(name) +
                                "\": use trace, debug, info, warn, error or off");
}

void write(Level level, std::string_view text) {
    if (enabled(level)) post(level, text);
}

}  // namespace shared_tensor::log
