#include "net/web_socket/web_socket_outbox.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/system/fork.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::size_t kScratchBytes = 256 << 10;   // masked at once
constexpr std::chrono::microseconds kInARow{50};   // messages that follow each other faster are written together
constexpr std::uint64_t kEnoughForOne = 64 << 10;  // bytes that are worth a system call of their own

/// An unpredictable mask (RFC 6455, section 5.3). Takes many from the kernel at once.
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

}  // namespace

BodyPart text_part(std::string text) {
    const auto kept = std::make_shared<const std::string>(std::move(text));
    return {std::as_bytes(std::span(*kept)), kept};
}

WebSocketOutbox::WebSocketOutbox(Stream& stream, bool masks, std::function<void()> call_runner)
    : stream_(&stream), masks_(masks), call_runner_(std::move(call_runner)), scratch_(masks ? kScratchBytes : 0) {}

std::list<WebSocketOutbox::Piece> WebSocketOutbox::frame(FrameType type, std::vector<BodyPart> parts) const {
    FrameHead head{type, true};
    head.size = size_of(parts);
    if (masks_) head.mask = fresh_mask();
    std::string text;
    append_head(head, text);
    std::list<Piece> pieces;
    pieces.push_back({text_part(std::move(text))});
    std::uint64_t offset = 0;
    for (BodyPart& part : parts) {
        const std::size_t size = part.bytes.size();
        if (size > 0) pieces.push_back({std::move(part), head.mask, offset});
        offset += size;
    }
    return pieces;
}

/// Returns the end of the frame, counted in all added bytes.
std::uint64_t WebSocketOutbox::append(Queue& queue, std::list<Piece> frame) {
    std::uint64_t bytes = 0;
    for (const Piece& piece : frame)
        bytes += piece.part.bytes.size();
    queue.pieces.splice(queue.pieces.end(), frame);
    return added_.fetch_add(bytes) + bytes;
}

std::optional<std::uint64_t> WebSocketOutbox::add(FrameType type, std::vector<BodyPart> parts) {
    const SteadyTime now = real_clock().now();
    std::list<Piece> pieces = frame(type, std::move(parts));
    bool calls = false, writes = false;
    const auto end = queue_.with([&](Queue& queue) -> std::optional<std::uint64_t> {
        if (queue.closed || queue.step >= Step::ending) return std::nullopt;
        if (queue.pieces.empty()) queue.taken = now;
        queue.closed = type == FrameType::close;
        const std::uint64_t added = append(queue, std::move(pieces));
        const bool answers = received_.exchange(false, std::memory_order_relaxed);
        const bool in_a_row = now - std::exchange(queue.added, now) < kInARow && !answers;
        if (queue.step == Step::writing || queue.step == Step::full) return added;
        if (in_a_row && unsent() < kEnoughForOne) {
            calls = std::exchange(queue.step, Step::called) != Step::called;
        } else {
            queue.step = Step::writing;
            writes = true;
        }
        return added;
    });
    if (calls) call_runner_();
    if (writes) write_out();
    return end;
}

/// The thread that writes sets `over` itself, since until then it may read the caller's memory.
bool WebSocketOutbox::wait_taken(std::uint64_t end) {
    queue_.lock().wait([&](const Queue& queue) { return bytes_out() >= end || queue.step == Step::over; });
    return bytes_out() >= end;
}

bool WebSocketOutbox::close(CloseCode code, std::string_view reason) {
    const bool first = add(FrameType::close, {text_part(close_payload(code, reason))}).has_value();
    if (first) call_runner_();  // it starts the time for the peer's close frame
    return first;
}

void WebSocketOutbox::drop() {
    std::list<Piece> dropped;  // destroyed outside the lock
    queue_.with([&](Queue& queue) {
        const bool written = queue.step == Step::writing || queue.step == Step::ending;
        queue.step = written ? Step::ending : Step::over;
        if (!written) dropped.swap(queue.pieces);
    });
    queue_.notify_all();
}

WebSocketOutbox::State WebSocketOutbox::state() const {
    return queue_.with([](const Queue& queue) {
        return State{queue.step == Step::full, queue.taken, queue.step >= Step::ending, queue.closed};
    });
}

void WebSocketOutbox::write(bool room) {
    const bool writes = queue_.with([&](Queue& queue) {
        if (queue.step == Step::called) queue.step = Step::idle;
        if (queue.step != Step::idle && !(queue.step == Step::full && room)) return false;
        if (!queue.pieces.empty()) queue.step = Step::writing;
        return queue.step == Step::writing;
    });
    if (writes) write_out();
}

/// Called by the thread that has set `writing`.
void WebSocketOutbox::write_out() {
    Batch batch;
    StreamResult result{StreamStatus::ok};
    while (true) {
        const Step step = queue_.with([&](Queue& queue) { return advance(queue, result, batch); });
        if (result.bytes > 0 || step == Step::over) queue_.notify_all();
        batch.done.clear();
        if (step == Step::full || step == Step::over) call_runner_();  // it waits for the peer, or ends
        if (step != Step::writing) return;
        result = write_some({batch.next.data(), batch.size});
        out_.fetch_add(result.bytes);
    }
}

/// The step after a write: removes the written bytes from the queue, and puts the next pieces into `batch`.
WebSocketOutbox::Step WebSocketOutbox::advance(Queue& queue, const StreamResult& result, Batch& batch) {
    if (result.bytes > 0) queue.taken = real_clock().now();
    for (std::size_t left = result.bytes; left > 0;) {
        Piece& piece = queue.pieces.front();
        const std::size_t taken = std::min(left, piece.part.bytes.size() - piece.done);
        piece.done += taken;
        left -= taken;
        if (piece.done < piece.part.bytes.size()) break;
        batch.done.splice(batch.done.end(), queue.pieces, queue.pieces.begin());
    }
    if (queue.step == Step::ending || result.status == StreamStatus::broken) {
        batch.done.splice(batch.done.end(), queue.pieces);
        return queue.step = Step::over;
    }
    if (result.status == StreamStatus::again) return queue.step = Step::full;
    if (queue.pieces.empty()) return queue.step = Step::idle;
    batch.size = 0;
    for (const Piece& piece : queue.pieces) {
        if (batch.size == kAtOnce) break;
        batch.next[batch.size++] = &piece;
    }
    return queue.step;
}

StreamResult WebSocketOutbox::write_some(std::span<const Piece* const> pieces) {
    if (masks_) return write_masked(pieces);
    std::array<iovec, kAtOnce> places;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        places[i] = place_of(pieces[i]->part.bytes.subspan(pieces[i]->done));
    return stream_->write({places.data(), pieces.size()});
}

StreamResult WebSocketOutbox::write_masked(std::span<const Piece* const> pieces) {
    std::size_t used = 0;
    for (const Piece* piece : pieces) {
        const auto left = piece->part.bytes.subspan(piece->done);
        const std::size_t size = std::min(left.size(), scratch_.size() - used);
        std::memcpy(scratch_.data() + used, left.data(), size);
        if (piece->mask) apply_mask({scratch_.data() + used, size}, *piece->mask, piece->offset + piece->done);
        used += size;
    }
    const iovec place{scratch_.data(), used};
    return stream_->write({&place, 1});
}

}  // namespace shared_tensor::net
