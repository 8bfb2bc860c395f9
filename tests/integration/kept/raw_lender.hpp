#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>

#include "integration/memory/raw_channel.hpp"
#include "local/segments/segment.hpp"

namespace shared_tensor::test {

/// A client by hand that lends one tensor of 65,536 float32 in memory of its own.
class RawLender {
public:
    explicit RawLender(int port) : channel_(port), session_(channel_.open()) {
        REQUIRE(channel_.ask("segment.offer", {{"segment", "mine"}, {"size", kBytes}}, {segment_.descriptor()})
                    .contains("result"));
    }
    /// What the daemon sees from now on, if it still looks.
    void fill(float value) const {
        auto* const numbers = reinterpret_cast<float*>(segment_.data());
        std::fill(numbers, numbers + kCountOfFloats, value);
    }
    Json tensor() const {
        return {{"$tensor",
                 {{"dtype", "float32"},
                  {"shape", {kCountOfFloats}},
                  {"shm", {{"segment", "mine"}, {"offset", 0}, {"size", kBytes}}}}}};
    }
    HeaderList headers(const std::string& accept) const {
        return {{"Shared-Tensor-Session", session_}, {"Shared-Tensor-Accept", accept}};
    }
    RawChannel& channel() { return channel_; }

    static constexpr std::int64_t kCountOfFloats = 1 << 16;
    static constexpr std::size_t kBytes = 4 * kCountOfFloats;

private:
    RawChannel channel_;
    const std::string session_;
    const local::Segment segment_{kBytes};
};

}  // namespace shared_tensor::test
