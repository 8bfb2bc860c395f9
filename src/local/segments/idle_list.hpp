#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>

namespace shared_tensor::local {

/// Memory that waits for its next use: a T has size() bytes, and several T may have one key. Removed entries are moved
/// into a list of the caller, which allocates nothing; the caller frees them after it has released its lock.
/// Not thread-safe.
template <class Key, class T>
class IdleList {
public:
    struct Entry {
        Key key;
        std::unique_ptr<T> memory;
    };
    using Entries = std::list<Entry>;

    std::size_t size() const { return entries_.size(); }
    std::uint64_t bytes() const { return bytes_; }

    /// Moves the only entry of `one` here. Throws std::bad_alloc; then the entry is still in `one`.
    void put(Entries& one) {
        by_key_.emplace(one.front().key, one.begin());
        bytes_ += one.front().memory->size();
        entries_.splice(entries_.end(), one);
    }
    /// Removes the entry of `key` that was put last. Empty if there is none.
    Entries take(const Key& key) {
        Entries taken;
        const auto [first, end] = by_key_.equal_range(key);
        if (first != end) move(std::prev(end), taken);
        return taken;
    }
    /// Removes all entries of `key`.
    void take_all(const Key& key, Entries& to) {
        for (auto [at, end] = by_key_.equal_range(key); at != end;)
            move(at++, to);
    }
    /// Removes the entry that is unused for longest: it is also the first of its key.
    void evict(Entries& to) { move(by_key_.lower_bound(entries_.front().key), to); }

private:
    using ByKey = std::multimap<Key, typename Entries::iterator>;
    void move(typename ByKey::iterator found, Entries& to) {
        const auto entry = found->second;
        by_key_.erase(found);
        bytes_ -= entry->memory->size();
        to.splice(to.end(), entries_, entry);
    }

    Entries entries_;  // in the order of put()
    ByKey by_key_;     // entries of one key are in the order of put()
    std::uint64_t bytes_ = 0;
};

}  // namespace shared_tensor::local
