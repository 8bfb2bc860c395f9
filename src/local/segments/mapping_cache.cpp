#include "local/segments/mapping_cache.hpp"

#include <map>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::local {

struct MappingCache::Shelf {
    struct Idle {
        std::unique_ptr<Mapping> mapping;
        std::uint64_t stamp;  // order of return: the lowest is unused for longest and is unmapped first
    };
    struct Entry {
        std::vector<Idle> idle;  // in the order of their return
        std::size_t used = 0;
        bool forgotten = false;
    };
    struct State {
        std::map<std::string, Entry> segments;
        Use use;
        std::uint64_t stamps = 0;
    };

    explicit Shelf(MappingLimits the_limits) : limits(the_limits) {}

    bool is_over(const State& held) const {
        return held.use.idle > limits.max_idle || held.use.idle_bytes > limits.max_idle_bytes;
    }

    static std::unique_ptr<Mapping> take_warmest(State& held, Entry& entry) {
        auto mapping = std::move(entry.idle.back().mapping);
        entry.idle.pop_back();
        --held.use.idle;
        held.use.idle_bytes -= mapping->size();
        return mapping;
    }

    static std::unique_ptr<Mapping> evict_oldest(State& held) {
        auto oldest = held.segments.end();
        for (auto it = held.segments.begin(); it != held.segments.end(); ++it) {
            if (it->second.idle.empty()) continue;
            if (oldest == held.segments.end() || it->second.idle.front().stamp < oldest->second.idle.front().stamp) {
                oldest = it;
            }
        }
        auto& idle = oldest->second.idle;
        auto mapping = std::move(idle.front().mapping);
        idle.erase(idle.begin());
        --held.use.idle;
        held.use.idle_bytes -= mapping->size();
        drop_if_unused(held, oldest);
        return mapping;
    }

    static void drop_if_unused(State& held, std::map<std::string, Entry>::iterator entry) {
        if (entry->second.idle.empty() && entry->second.used == 0) held.segments.erase(entry);
    }

    /// Undoes the count of a mapping as used.
    void release(const std::string& segment) {
        state.with([&](State& held) {
            --held.use.used;
            const auto entry = held.segments.find(segment);
            --entry->second.used;
            drop_if_unused(held, entry);
        });
    }

    const MappingLimits limits;
    Guarded<State> state;
};

MappingCache::MappingCache(MappingLimits limits) : shelf_(std::make_unique<Shelf>(limits)) {}
MappingCache::~MappingCache() = default;

std::unique_ptr<Mapping> MappingCache::take(const std::string& segment, const std::function<Source()>& source) {
    auto known = shelf_->state.with([&](Shelf::State& held) -> std::unique_ptr<Mapping> {
        Shelf::Entry& entry = held.segments[segment];
        std::unique_ptr<Mapping> warmest;
        if (!entry.idle.empty()) warmest = Shelf::take_warmest(held, entry);
        ++entry.used;
        ++held.use.used;
        return warmest;
    });
    try {
        if (known == nullptr) {
            const Source made = source();
            known = std::make_unique<Mapping>(*made.descriptor, made.bytes, made.sharing);
        }
    } catch (...) {
        shelf_->release(segment);
        throw;
    }
    return known;
}

void MappingCache::put_back(const std::string& segment, std::unique_ptr<Mapping> mapping, bool is_clean) {
    if (!is_clean && !mapping->is_broken()) mapping->forget_writes();
    std::vector<std::unique_ptr<Mapping>> gone;  // unmapped outside the lock: unmapping is slow
    shelf_->state.with([&](Shelf::State& held) {
        const auto entry = held.segments.find(segment);
        --held.use.used;
        --entry->second.used;
        if (entry->second.forgotten || mapping->is_broken()) {
            gone.push_back(std::move(mapping));
            return Shelf::drop_if_unused(held, entry);
        }
        const std::size_t size = mapping->size();
        entry->second.idle.push_back({std::move(mapping), held.stamps++});
        ++held.use.idle;  // counted after push_back(): if that throws, the mapping is not kept
        held.use.idle_bytes += size;
        while (shelf_->is_over(held))
            gone.push_back(Shelf::evict_oldest(held));
    });
}

void MappingCache::forget(const std::string& segment) {
    std::vector<Shelf::Idle> gone;
    shelf_->state.with([&](Shelf::State& held) {
        const auto entry = held.segments.find(segment);
        if (entry == held.segments.end()) return;
        for (const Shelf::Idle& one : entry->second.idle) {
            --held.use.idle;
            held.use.idle_bytes -= one.mapping->size();
        }
        gone.swap(entry->second.idle);
        entry->second.forgotten = true;
        Shelf::drop_if_unused(held, entry);
    });
}

MappingCache::Use MappingCache::use() const {
    return shelf_->state.with([](const Shelf::State& held) { return held.use; });
}

}  // namespace shared_tensor::local
