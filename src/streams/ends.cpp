#include "streams/ends.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/concurrency/at_end.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::streams {

/// A sender that follows the protocol counts items until they are reported as taken. So the queue never exceeds a
/// window.
ReceiveQueue::Added ReceiveQueue::add(Item item) {
    const Added added = state_.with([&](State& state) {
        if (state.closed) return Added::dropped;
        if (state.ended || state.items.size() >= state.window.items) return Added::rejected;
        if (!state.items.empty() && state.cost >= state.window.bytes) return Added::rejected;
        item.number = state.added++;
        state.cost += item.cost;
        state.items.push_back(std::move(item));
        return Added::kept;
    });
    if (added == Added::kept) state_.notify_all();
    return added;
}

void ReceiveQueue::end() {
    state_.with([](State& state) { state.ended |= !state.closed; });
    state_.notify_all();
}

std::deque<Item> ReceiveQueue::close(bool then_read) {
    std::deque<Item> dropped;
    state_.with([&](State& state) {
        state.closed = true;
        if (then_read) return;
        dropped.swap(state.items);
        if (!dropped.empty()) state.ended = false;
    });
    state_.notify_all();
    return dropped;
}

bool ReceiveQueue::is_closed() const {
    return state_.with([](const State& state) { return state.closed; });
}

bool ReceiveQueue::has_next() const { return state_.with(std::mem_fn(&State::has_next)); }

/// Taken items are reported at every half window and at the end. The sender only waits when a whole window is not
/// taken, so it never waits while this queue is empty.
ReceiveQueue::Next ReceiveQueue::next() {
    auto state = state_.lock();
    state.wait(std::mem_fn(&State::has_next));
    if (state->items.empty()) {
        const bool untold = state->ended && std::exchange(state->told, state->taken) < state->taken;
        return {{}, state->closed && !state->ended, untold ? std::optional(state->taken) : std::nullopt};
    }
    Next next{std::move(state->items.front()), false, {}};
    state->items.pop_front();
    state->cost -= next.item->cost;
    state->cost_untold += next.item->cost;
    ++state->taken;
    const std::uint64_t untold = state->taken - state->told;
    if (untold * 2 >= state->window.items || state->cost_untold * 2 >= state->window.bytes) {
        next.taken = state->told = state->taken;
        state->cost_untold = 0;
    }
    return next;
}

SendWindow::Room SendWindow::wait() {
    auto state = state_.lock();
    state.wait(std::not_fn(&State::is_full));
    if (state->closed) return Room::over;
    return state->stopped ? Room::stopped : Room::free;
}

bool SendWindow::is_full() const { return state_.with(std::mem_fn(&State::is_full)); }

void SendWindow::sent(std::uint64_t cost, std::function<void()> taken) {
    state_.with([&](State& state) {
        if (state.window.items == Window::kUnbounded && !taken) return;
        state.on_the_way.push_back({cost, std::move(taken)});
        state.cost += cost;
    });
}

bool SendWindow::taken(std::uint64_t items) {
    std::vector<std::function<void()>> reports;
    const bool valid = state_.with([&](State& state) {
        if (items < state.taken || items - state.taken > state.on_the_way.size()) return false;
        for (; state.taken < items; ++state.taken) {
            Sent& first = state.on_the_way.front();
            state.cost -= first.cost;
            if (first.taken) reports.push_back(std::move(first.taken));
            state.on_the_way.pop_front();
        }
        return true;
    });
    if (valid) state_.notify_all();
    for (const auto& report : reports)
        report();
    return valid;
}

void SendWindow::all_taken() {
    taken(state_.with([](const State& state) { return state.taken + state.on_the_way.size(); }));
}

void SendWindow::stop() {
    state_.with([](State& state) { state.stopped = true; });
    state_.notify_all();
}

void SendWindow::close() {
    state_.with([](State& state) { state.closed = true; });
    state_.notify_all();
}

Flow Flow::make(StreamInfo info, bool reads_inline, const Window& in, const Window& out) {
    if (reads_inline) return {std::move(info), std::make_shared<ReceiveQueue>(in)};
    return {std::move(info), nullptr, std::make_shared<SendWindow>(out)};
}

std::deque<Item> Flow::close(bool then_read) const {
    if (out != nullptr) out->close();
    return in != nullptr ? in->close(then_read) : std::deque<Item>();
}

const Flow* find(const std::vector<Flow>& flows, std::string_view name) {
    const auto found = std::find_if(flows.begin(), flows.end(), [&](const Flow& one) { return one.info.name == name; });
    return found == flows.end() ? nullptr : &*found;
}

Heard hear(const Flow& flow, const StreamMessage& message, Item item) {
    using Kind = StreamMessage::Kind;
    const bool to_reader = message.kind == Kind::item || message.kind == Kind::end;
    const bool to_writer = message.kind == Kind::taken || message.kind == Kind::stop;
    if (to_reader && flow.in == nullptr) return {"it sends items of a stream that is its own to read"};
    if (to_writer && flow.out == nullptr) return {"it takes items of a stream that is its own to write"};
    if (message.kind == Kind::item) {
        const ReceiveQueue::Added added = flow.in->add(std::move(item));
        const bool rejected = added == ReceiveQueue::Added::rejected;
        return {rejected ? "the stream has ended, or the item is beyond its window" : "",
                added == ReceiveQueue::Added::kept};
    }
    if (message.kind == Kind::end) flow.in->end();
    if (message.kind == Kind::taken && !flow.out->taken(message.taken)) return {"it took more items than were sent"};
    if (message.kind == Kind::stop) flow.out->stop();
    return {};
}

codec::Value print_item(const detail::ItemSink::Write& write, codec::TensorPort& port,
                        codec::JsonSink::References references, const codec::DescribeObject& describe,
                        json_rpc::LongText& out) {
    codec::Value value;
    codec::JsonSink sink(value, port, references);
    write(ValueWriter(sink, sink.root()));
    codec::PlaceholderPrinter placeholders(value, port, describe);
    json_rpc::print_json(value.json, out, &placeholders);
    return value;
}

std::uint64_t bytes_elsewhere(const codec::Value& value, std::uint64_t in_message) {
    std::uint64_t bytes = 0;
    for (const codec::TensorPointer& tensor : value.tensors)
        bytes += tensor->bytes();
    return bytes - std::min(bytes, in_message);
}

std::string place_of(const Flow& flow, std::uint64_t item, const std::string& inside) {
    const bool needs_dot = !inside.empty() && inside.front() != '[';
    return flow.info.name + '[' + std::to_string(item) + ']' + (needs_dot ? "." : "") + inside;
}

/// Taken items are reported after this item is read, because the writer may then reuse the item's memory.
bool Source::next(const Read& read) {
    call_->check_process();
    inline_reads_.before_wait([this] { return flow_.in->has_next(); });
    ReceiveQueue::Next next = flow_.in->next();
    const AtEnd told([&] {
        if (next.taken) tell(*next.taken);
    });
    if (next.item) {
        call_->read(flow_, std::move(*next.item), read);
        return true;
    }
    if (next.closed) call_->check();
    ended_ = true;
    return false;
}

void Source::tell(std::uint64_t taken) const noexcept {
    try {
        call_->say(streams::taken(call_->id(), flow_.info.name, taken));
    } catch (const std::exception&) {  // no memory
        call_->abandon();
    }
}

void Source::stop() noexcept {
    if (std::exchange(ended_, true)) return;
    try {
        call_->check_process();
        const bool over = flow_.in->is_closed();
        call_->abandon(flow_.in->close(false));
        if (!over) call_->say(streams::stop(call_->id(), flow_.info.name));
    } catch (const std::exception&) {  // no memory: the stream stops when its window is full
    }
}

bool Sink::put(const Write& write) {
    call_->check_process();
    if (ended_) throw std::logic_error("the stream " + flow_.info.name + " was ended: nothing can be written to it");
    if (flow_.out->is_full()) {
        if (const auto socket = call_->socket()) socket->stop_inline_reads();
    }
    const SendWindow::Room room = flow_.out->wait();
    if (room == SendWindow::Room::over) call_->check();
    if (room != SendWindow::Room::free) return false;
    call_->send(flow_, start_, write);
    return true;
}

void Sink::end() {
    call_->check_process();
    if (!std::exchange(ended_, true)) call_->say(streams::end(call_->id(), flow_.info.name));
}

void Sink::leave(bool thrown) noexcept {
    if (!std::exchange(ended_, true)) call_->leave(flow_, thrown);
}

}  // namespace shared_tensor::streams
