#include "processes/present_calls.hpp"

#include <map>
#include <utility>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::processes {

namespace {

using PresentCalls = std::list<PresentCall>;

Guarded<PresentCalls>& present_calls() {
    static auto* const calls = new Guarded<PresentCalls>;  // calls may run while the process ends
    return *calls;
}

/// Notes which calls go on though nobody waits for them.
void note_ignored(PresentCalls& all, SteadyTime now) {
    for (PresentCall& call : all) {
        const bool is_wanted = now <= call.end && !(call.runs() && call.context->cancelled());
        if (!is_wanted && !call.ignored_since) call.ignored_since = now;
    }
}

/// Whether so many calls hang that the process is to end.
bool too_many_hang(const PresentCalls& all, SteadyTime now) {
    std::size_t running = 0, reading = 0;
    bool works = false;
    for (const PresentCall& call : all) {
        works |= call.runs() && !call.ignored_since;
        if (call.ignored_for(now) >= kHangTime) ++(call.runs() ? running : reading);
    }
    return running + (works ? 0 : reading) >= kMostHanging;
}

/// A function that has no place left, because calls that hang have them all; empty for none.
std::string_view function_without_places(const PresentCalls& all, SteadyTime now) {
    std::map<std::string_view, std::size_t> places;
    for (const PresentCall& call : all) {
        if (call.runs() && call.ignored_for(now) >= kPlacesHangTime && ++places[call.function] == call.places)
            return call.function;
    }
    return {};
}

std::string ignored_for(std::chrono::seconds time) {
    return " ignored their cancellation for " + std::to_string(time.count()) + " s";
}

}  // namespace

Presence::Presence(PresentCall call) {
    PresentCalls made{std::move(call)};
    call_ = made.begin();
    present_calls().with([&](PresentCalls& all) { all.splice(all.end(), made); });
}

Presence::~Presence() {
    PresentCalls gone;  // destroyed without the lock
    present_calls().with([&](PresentCalls& all) { gone.splice(gone.end(), all, call_); });
}

void Presence::set_context(const Context* context) {
    present_calls().with([&](PresentCalls&) { call_->context = context; });
}

std::string why_to_end(SteadyTime now) {
    return present_calls().with([&](PresentCalls& all) -> std::string {
        note_ignored(all, now);
        if (const auto function = function_without_places(all, now); !function.empty())
            return "the calls that have all places of " + std::string(function) + ignored_for(kPlacesHangTime);
        return too_many_hang(all, now) ? std::to_string(kMostHanging) + " of its calls" + ignored_for(kHangTime) : "";
    });
}

}  // namespace shared_tensor::processes
