#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "net/stream/stream.hpp"

namespace shared_tensor::test {

/// Takes what a test allows, and keeps it.
class HandStream final : public net::Stream {
public:
    HandStream() : Stream(ProcessFd()) {}

    std::string taken;
    std::size_t room = 0;  ///< bytes that it still takes
    std::size_t at_once = 1 << 30;
    bool broken = false;
    std::function<void()> before_write;

    net::StreamResult write(std::span<const iovec> parts) override {
        if (before_write) before_write();
        if (broken) return {net::StreamStatus::broken};
        const std::size_t most = std::min(room, at_once);
        std::size_t bytes = 0;
        for (const iovec& part : parts) {
            const std::size_t size = std::min(part.iov_len, most - bytes);
            taken.append(static_cast<const char*>(part.iov_base), size);
            bytes += size;
        }
        room -= bytes;
        return bytes > 0 ? net::StreamResult{net::StreamStatus::ok, bytes}
                         : net::StreamResult{net::StreamStatus::again};
    }
    net::StreamResult read(void*, std::size_t, Wait) override { return {net::StreamStatus::again}; }
};

}  // namespace shared_tensor::test
