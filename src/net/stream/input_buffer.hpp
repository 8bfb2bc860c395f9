#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "net/stream/stream.hpp"

namespace shared_tensor::net {

/// Received bytes that are not used yet: the end of one request and perhaps the start of the next (pipelining).
/// One thread at a time. The buffer belongs to the serving thread, so idle connections have none.
class InputBuffer {
public:
    explicit InputBuffer(std::size_t capacity) : store_(capacity) {}

    std::string_view view() const { return {store_.data() + begin_, end_ - begin_}; }
    std::size_t size() const { return end_ - begin_; }
    bool empty() const { return begin_ == end_; }

    void consume(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void clear() { begin_ = end_ = 0; }

    /// Room after the bytes, at least one byte. Moves the bytes to the front, or grows.
    char* room() {
        if (end_ == store_.size() && begin_ > 0) {
            std::memmove(store_.data(), store_.data() + begin_, size());
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == store_.size()) store_.resize(store_.size() * 2);
        return store_.data() + end_;
    }
    std::size_t room_size() const { return store_.size() - end_; }
    void filled(std::size_t bytes) { end_ += bytes; }
    /// One read of the wire into the room.
    StreamResult read_from(Stream& stream, Stream::Wait wait) {
        char* const to = room();
        const StreamResult got = stream.read(to, room_size(), wait);
        filled(got.bytes);
        return got;
    }

    void assign(std::string_view bytes) {
        clear();
        if (bytes.size() > store_.size()) store_.resize(bytes.size());
        if (!bytes.empty()) std::memcpy(store_.data(), bytes.data(), bytes.size());
        end_ = bytes.size();
    }

private:
    std::vector<char> store_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace shared_tensor::net
