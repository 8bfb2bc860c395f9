#include "runtime/batches/batches.hpp"

#include <algorithm>
#include <utility>

namespace shared_tensor::runtime {

void BatchQueue::put(Open& batch, WaitingCallPointer call) {
    batch.rows += call->arguments.rows;
    batch.calls.push_back(std::move(call));
}

bool BatchQueue::add(WaitingCallPointer call) {
    const bool taken = state_.with([&](State& state) {
        SameKey& same = state[call->arguments.key];
        const auto batch =
            std::find_if(same.open.begin(), same.open.end(), [&](const Open* open) { return fits(*open, *call); });
        if (batch == same.open.end()) {
            same.waiting.push_back(std::move(call));
            return false;
        }
        put(**batch, std::move(call));
        return true;
    });
    if (taken) state_.notify_all();
    return taken;
}

/// Returns the call, which waits no longer; null if it does not wait.
WaitingCallPointer BatchQueue::unlink(State& state, const WaitingCall& call) {
    const auto same = state.find(call.arguments.key);
    if (same == state.end()) return nullptr;
    auto& waiting = same->second.waiting;
    const auto found =
        std::find_if(waiting.begin(), waiting.end(), [&](const auto& one) { return one.get() == &call; });
    if (found == waiting.end()) return nullptr;
    WaitingCallPointer unlinked = std::move(*found);
    waiting.erase(found);
    if (same->second.empty()) state.erase(same);
    return unlinked;
}

bool BatchQueue::remove(const WaitingCall& call) {
    const WaitingCallPointer removed = state_.with([&](State& state) { return unlink(state, call); });
    return removed != nullptr;
}

/// Starts a batch with the call and those that wait and fit. False if the call does not wait.
bool BatchQueue::open(State& state, const WaitingCall& call, Open& batch) const {
    WaitingCallPointer first = unlink(state, call);
    if (first == nullptr) return false;
    put(batch, std::move(first));
    SameKey& same = state[call.arguments.key];
    for (auto at = same.waiting.begin(); at != same.waiting.end();) {
        const bool taken = fits(batch, **at);
        if (taken) put(batch, std::move(*at));
        at = taken ? same.waiting.erase(at) : std::next(at);
    }
    same.open.push_back(&batch);
    return true;
}

void BatchQueue::close(State& state, const WaitingCall& call, Open& batch) {
    const auto same = state.find(call.arguments.key);
    std::erase(same->second.open, &batch);
    if (same->second.empty()) state.erase(same);
}

std::vector<WaitingCallPointer> BatchQueue::take(const WaitingCall& call) {
    Open batch;
    auto state = state_.lock();
    if (!open(*state, call, batch)) return {};
    if (wait_.count() > 0) state.wait_until(call.since + wait_, [&](const State&) { return batch.rows >= most_rows_; });
    close(*state, call, batch);
    return std::move(batch.calls);
}

}  // namespace shared_tensor::runtime
