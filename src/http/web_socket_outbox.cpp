#include "http/web_socket_outbox.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "util/process_mark.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::size_t kAtOnce = 64;                // pieces of one system call
constexpr std::size_t kScratchBytes = 256 << 10;   // masked at once
constexpr std::chrono::microseconds kInARow{50};   // messages that come closer are written together
constexpr std::uint64_t kEnoughForOne = 64 << 10;  // bytes that are worth a system call of their own

/// Nobody must be able to guess it (RFC 6455, section 5.3): bits of the kernel, many at once.
FrameMask fresh_mask() {
    struct Bits {
        std::array<FrameMask, 64> masks;
        std::size_t used = 64;
        ProcessMark process{};  ///< a forked child must not use the same bits
    };
    thread_local Bits bits;
    if (bits.used == bits.masks.size() || !bits.process.is_here()) {
        if (::getrandom(bits.masks.data(), sizeof bits.masks, 0) != static_cast<ssize_t>(sizeof bits.masks))
            throw std::system_error(errno, std::generic_category(), "getrandom");
        bits.used = 0;
        bits.process = ProcessMark();
    }
    return bits.masks[bits.used++];
}

std::uint64_t size_of(const std::vector<BodyPart>& parts) {
    std::uint64_t size = 0;
    for (const BodyPart& part : parts)
        size += part.bytes.size();
    return size;
}

template <class Piece>
std::uint64_t size_of_frame(const std::vector<Piece>& pieces) {
    std::uint64_t size = 0;
    for (const Piece& piece : pieces)
        size += piece.part.bytes.size();
    return size;
}

BodyPart text_part(std::string text) {
    const auto kept = std::make_shared<const std::string>(std::move(text));
    return {std::as_bytes(std::span(*kept)), kept};
}

}  // namespace

std::vector<WebSocketOutbox::Piece> WebSocketOutbox::frame(FrameType type, std::vector<BodyPart> parts) {
    FrameHead head{type, true, size_of(parts)};
    if (masks_) head.mask = fresh_mask();
    std::string text;
    append_head(head, text);
    std::vector<Piece> pieces;
    pieces.reserve(1 + parts.size());
    pieces.push_back({text_part(std::move(text))});
    std::uint64_t offset = 0;
    for (BodyPart& part : parts) {
        const std::size_t size = part.bytes.size();
        if (size > 0) pieces.push_back({std::move(part), head.mask, offset});
        offset += size;
    }
    return pieces;
}

void WebSocketOutbox::append(Queue& queue, std::vector<Piece> frame) {
    for (Piece& piece : frame) {
        queue.end += piece.part.bytes.size();
        queue.pieces.push_back(std::move(piece));
    }
}

std::optional<std::uint64_t> WebSocketOutbox::add(FrameType type, std::vector<BodyPart> parts) {
    const SteadyTime now = real_clock().now();
    std::vector<Piece> pieces = frame(type, std::move(parts));
    std::uint64_t end = 0;
    const auto next = queue_.with([&](Queue& queue) -> std::optional<Next> {
        if (queue.closed) return std::nullopt;
        unsent_.fetch_add(size_of_frame(pieces), std::memory_order_relaxed);  // before it can be written
        if (queue.pieces.empty()) queue.taken = now;
        append(queue, std::move(pieces));
        end = queue.end;
        const bool answers = heard_.exchange(false, std::memory_order_relaxed);
        const bool in_a_row = now - std::exchange(queue.added, now) < kInARow && !answers;
        if (queue.writing || queue.stuck) return Next::nothing;
        if (in_a_row && unsent() < kEnoughForOne) return std::exchange(queue.called, true) ? Next::nothing : Next::call;
        queue.writing = true;
        return Next::write;
    });
    if (next == Next::call) call_runner_();
    if (next == Next::write) write_out();
    return next ? std::optional(end) : std::nullopt;
}

bool WebSocketOutbox::wait_taken(std::uint64_t end) {
    auto queue = queue_.lock();
    ++queue->waiting;
    // a writer may still be reading the memory that the caller is about to give up
    queue.wait([&](const Queue& now) { return now.taken_bytes >= end || (now.broken && !now.writing); });
    --queue->waiting;
    return queue->taken_bytes >= end;
}

bool WebSocketOutbox::close(CloseCode code, std::string_view reason) {
    std::vector<Piece> pieces = frame(FrameType::close, {text_part(close_payload(code, reason))});
    const bool first = queue_.with([&](Queue& queue) {
        if (queue.closed) return false;
        unsent_.fetch_add(size_of_frame(pieces), std::memory_order_relaxed);
        append(queue, std::move(pieces));
        queue.closed = true;
        return true;
    });
    if (first) call_runner_();
    return first;
}

void WebSocketOutbox::drop() {
    std::deque<Piece> dropped;  // outside the lock
    queue_.with([&](Queue& queue) {
        queue.closed = true;
        queue.broken = true;
        if (!queue.writing) dropped.swap(queue.pieces);
    });
    queue_.notify_all();
}

WebSocketOutbox::State WebSocketOutbox::state() const {
    return queue_.with([](const Queue& queue) {
        return State{queue.stuck && !queue.pieces.empty(), queue.taken, queue.broken, queue.closed};
    });
}

WireResult WebSocketOutbox::write_some(const std::vector<const Piece*>& first) {
    if (masks_) return write_masked(first);
    std::array<iovec, kAtOnce> places;
    for (std::size_t i = 0; i < first.size(); ++i) {
        const auto left = first[i]->part.bytes.subspan(first[i]->done);
        places[i] = {const_cast<std::byte*>(left.data()), left.size()};  // sendmsg only reads it
    }
    return wire_->write({places.data(), first.size()});
}

WireResult WebSocketOutbox::write_masked(const std::vector<const Piece*>& first) {
    if (scratch_.empty()) scratch_.resize(kScratchBytes);
    std::size_t used = 0;
    for (const Piece* piece : first) {
        const auto left = piece->part.bytes.subspan(piece->done);
        const std::size_t size = std::min(left.size(), scratch_.size() - used);
        std::memcpy(scratch_.data() + used, left.data(), size);
        if (piece->mask) apply_mask({scratch_.data() + used, size}, *piece->mask, piece->offset + piece->done);
        used += size;
    }
    const iovec place{scratch_.data(), used};
    return wire_->write({&place, 1});
}

void WebSocketOutbox::write(bool room) {
    const bool mine = queue_.with([&](Queue& queue) {
        queue.called = false;
        if (queue.writing || queue.broken || queue.pieces.empty() || (queue.stuck && !room)) return false;
        queue.stuck = false;
        return queue.writing = true;
    });
    if (mine) write_out();
}

/// By the one thread that writes.
void WebSocketOutbox::write_out() {
    std::vector<const Piece*> first;
    std::vector<Piece> written;
    while (true) {
        bool awaited = false;
        const bool any = queue_.with([&](Queue& queue) {
            awaited = queue.waiting > 0;
            first.clear();
            for (std::size_t i = 0; i < std::min(queue.pieces.size(), kAtOnce); ++i)
                first.push_back(&queue.pieces[i]);
            return queue.writing = !first.empty() && !queue.broken;
        });
        if (!any && awaited) queue_.notify_all();
        if (!any) return;
        const WireResult result = write_some(first);
        const SteadyTime now = real_clock().now();
        bytes_out_.fetch_add(result.bytes, std::memory_order_relaxed);
        unsent_.fetch_sub(result.bytes, std::memory_order_relaxed);
        const bool goes_on = queue_.with([&](Queue& queue) {
            if (result.bytes > 0) queue.taken = now;
            queue.taken_bytes += result.bytes;
            awaited = queue.waiting > 0;
            take_written(queue, result.bytes, written);
            queue.broken |= result.status == WireStatus::broken;
            queue.stuck = result.status == WireStatus::again;
            return queue.writing = !queue.broken && !queue.stuck;
        });
        if (awaited) queue_.notify_all();
        written.clear();                      // outside the lock: their memory may be given back here
        if (!goes_on) return call_runner_();  // which waits for the peer, or ends
    }
}

/// Takes `bytes` off the front.
void WebSocketOutbox::take_written(Queue& queue, std::size_t bytes, std::vector<Piece>& written) {
    while (!queue.pieces.empty()) {
        Piece& piece = queue.pieces.front();
        const std::size_t taken = std::min(bytes, piece.part.bytes.size() - piece.done);
        piece.done += taken;
        bytes -= taken;
        if (piece.done < piece.part.bytes.size()) return;
        written.push_back(std::move(piece));
        queue.pieces.pop_front();
    }
}

}  // namespace shared_tensor::http
