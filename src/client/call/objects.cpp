#include "client/call/objects.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::size_t kAtOnce = 1000;  // ids in one request; an id has 34 characters

}  // namespace

ObjectPointer Objects::adopt(std::string id, std::string type) {
    auto cell = std::make_unique<ObjectCell>(ObjectCell{std::move(type), std::move(id)});
    return {cell.release(), [self = shared_from_this()](const ObjectCell* last) {
                const std::unique_ptr<const ObjectCell> owned(last);
                self->release_later(owned->id);
            }};
}

/// If there is no memory or no thread for this, the next release tries again. A handle that is never released ends with
/// its session, or after some time without use.
void Objects::release_later(std::string id) noexcept {
    if (!process_.is_here()) return;
    try {
        const bool first = state_.with([&](State& state) {
            state.waiting.push_back(std::move(id));
            return !std::exchange(state.telling, true);
        });
        if (first) request_executor().post([self = shared_from_this()] { self->tell(); });
    } catch (const std::exception& error) {
        state_.with([](State& state) { state.telling = false; });
        log::warn("the handle of an object is not released now: ", error.what());
    }
}

void Objects::tell() noexcept {
    std::vector<std::string> ids;
    state_.with([&](State& state) {
        ids.swap(state.waiting);
        state.telling = false;
    });
    try {
        for (std::size_t start = 0; start < ids.size(); start += kAtOnce) {
            const auto first = ids.begin() + static_cast<std::ptrdiff_t>(start);
            const auto count = static_cast<std::ptrdiff_t>(std::min(kAtOnce, ids.size() - start));
            release_(std::vector<std::string>(first, first + count));
        }
    } catch (const std::exception& error) {
        log::debug("handles of objects could not be released, so they end with their session: ", error.what());
    }
}

std::shared_ptr<const codec::Value> AnsweredObjects::value(const codec::Json&) {
    throw InvalidValue({}, "a result", "a reference to a result");
}

/// A result may be read twice: both reads return the same handle.
ObjectPointer AnsweredObjects::object(const codec::Json& handle) {
    const bool is_handle = handle.is_object() && handle.contains("id") && handle["id"].is_string();
    const auto objects = is_handle && objects_ ? objects_() : nullptr;
    if (objects == nullptr) throw InvalidValue({}, "the handle of an object", "something else");
    const auto& id = handle["id"].get_ref<const std::string&>();
    for (const ObjectPointer& known : known_) {
        if (known->id == id) return known;
    }
    const auto type = handle.find("type");
    known_.push_back(objects->adopt(id, type != handle.end() && type->is_string() ? type->get<std::string>() : ""));
    return known_.back();
}

}  // namespace shared_tensor::client
