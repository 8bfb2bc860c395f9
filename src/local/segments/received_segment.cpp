#include "local/segments/received_segment.hpp"

#include <exception>
#include <map>
#include <utility>

#include "base/log/log.hpp"

namespace shared_tensor::local {

namespace {

struct Range {
    std::size_t bytes = 0;
    std::weak_ptr<ReceivedMemory> memory;
};
using Ranges = Guarded<std::map<const std::byte*, Range, std::less<>>>;  ///< by the first byte of the mapping

constinit NeverDestroyed<OfThisProcess<Ranges>> known;

std::shared_ptr<ReceivedMemory> memory_at(const std::byte* wanted, std::uint64_t bytes) {
    Ranges* const ranges = known.value.find();
    if (ranges == nullptr) return nullptr;
    return ranges->with([&](const auto& all) -> std::shared_ptr<ReceivedMemory> {
        auto next = all.upper_bound(wanted);
        if (next == all.begin()) return nullptr;
        const auto& [start, range] = *--next;
        const auto offset = static_cast<std::size_t>(wanted - start);
        return offset < range.bytes && bytes <= range.bytes - offset ? range.memory.lock() : nullptr;
    });
}

}  // namespace

ReceivedSegment::~ReceivedSegment() {
    if (!process_.is_here()) return;
    for (const auto& one : listeners_.with([](auto& all) { return std::exchange(all, {}); })) {
        try {
            if (const auto listener = one.lock()) listener->segment_gone(id());
        } catch (const std::exception& error) {
            log::debug("a process keeps a mapping of a segment that is gone: ", error.what());
        }
    }
}

void ReceivedSegment::tell_end(std::weak_ptr<SegmentListener> listener) const {
    listeners_.with([&](auto& all) {
        std::erase_if(all, [](const auto& one) { return one.expired(); });
        all.push_back(std::move(listener));
    });
}

ReceivedRange::ReceivedRange(const std::shared_ptr<ReceivedMemory>& memory) : data_(memory->mapping().data()) {
    if (memory->mapping().size() < kMinPassedOn) return;
    known.value.get([] { return std::make_unique<Ranges>(); }).with([&](auto& all) {
        all.insert_or_assign(data_, Range{memory->mapping().size(), memory});
    });
}

ReceivedRange::~ReceivedRange() {
    if (Ranges* const ranges = known.value.find()) ranges->with([&](auto& all) { all.erase(data_); });
}

std::optional<SegmentPlace> find_received(const void* data, std::uint64_t bytes,
                                          const std::function<bool(const ReceivedMemory&)>& may_have) {
    if (bytes < kMinPassedOn) return std::nullopt;
    const auto* const wanted = static_cast<const std::byte*>(data);
    const auto memory = memory_at(wanted, bytes);
    if (memory == nullptr || !may_have(*memory)) return std::nullopt;
    const auto offset = static_cast<std::size_t>(wanted - memory->mapping().data());
    if (memory->mapping().differs(offset, static_cast<std::size_t>(bytes))) return std::nullopt;
    SegmentUsePointer use = memory->pass_on(memory);
    if (use == nullptr) return std::nullopt;
    return SegmentPlace{std::move(use), offset};
}

bool is_as_received(const void* data, std::uint64_t bytes) {
    const auto* const wanted = static_cast<const std::byte*>(data);
    const auto memory = memory_at(wanted, bytes);
    if (memory == nullptr) return false;
    return !memory->mapping().differs(static_cast<std::size_t>(wanted - memory->mapping().data()),
                                      static_cast<std::size_t>(bytes));
}

}  // namespace shared_tensor::local
