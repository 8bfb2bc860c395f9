#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/concurrency/clock.hpp"

namespace shared_tensor {

/// Entries by key. Each entry belongs to an owner, weighs some bytes and may have a deadline. The table keeps the sums
/// of each owner and of all, for quotas, and the entries in the order of their deadlines, for expiry.
///
/// An entry stays at its address until take(). All operations but iteration cost a few look-ups in trees. Not
/// thread-safe: the table lives in a Guarded. Its user destroys values that it took out after it left that lock.
template <class Value, class Owner = std::string, class Key = std::string>
class OwnedTable {
public:
    struct Sums {
        std::size_t entries = 0;
        std::uint64_t bytes = 0;
    };
    class Entry;

private:
    struct OfOwner {
        std::uint64_t bytes = 0;
        std::unordered_set<Entry*> entries;
    };
    using Owners = std::map<Owner, OfOwner, std::less<>>;
    using Deadlines = std::multimap<SteadyTime, Entry*>;  // equal ones in the order in which they were set

public:
    static constexpr SteadyTime kNever = SteadyTime::max();

    class Entry {
    public:
        explicit Entry(Value the_value) : value(std::move(the_value)) {}
        Value value;
        const Key& key() const { return *key_; }
        const Owner& owner() const { return owner_->first; }
        std::uint64_t bytes() const { return bytes_; }
        SteadyTime deadline() const { return deadline_; }

    private:
        friend class OwnedTable;
        const Key* key_ = nullptr;
        typename Owners::iterator owner_{};
        std::uint64_t bytes_ = 0;
        SteadyTime deadline_ = kNever;
        typename Deadlines::iterator place_{};
    };

    /// `key` must be new. Throws std::bad_alloc, and leaves the table as it was.
    Entry& add(Key key, const Owner& owner, std::uint64_t bytes, SteadyTime deadline, Value value) {
        const auto placed = entries_.try_emplace(std::move(key), std::move(value)).first;
        Entry& entry = placed->second;
        entry.key_ = &placed->first;
        entry.owner_ = owners_.end();
        try {
            entry.owner_ = owners_.try_emplace(owner).first;
            entry.owner_->second.entries.insert(&entry);
            set_deadline(entry, deadline);
        } catch (...) {  // no memory: nothing of the entry stays
            if (entry.owner_ != owners_.end()) {
                entry.owner_->second.entries.erase(&entry);
                if (entry.owner_->second.entries.empty()) owners_.erase(entry.owner_);
            }
            entries_.erase(placed);
            throw;
        }
        set_bytes(entry, bytes);
        return entry;
    }

    void set_bytes(Entry& entry, std::uint64_t bytes) {
        bytes_ += bytes - entry.bytes_;
        entry.owner_->second.bytes += bytes - entry.bytes_;
        entry.bytes_ = bytes;
    }

    /// Throws std::bad_alloc, and keeps the old deadline.
    void set_deadline(Entry& entry, SteadyTime deadline) {
        const auto place = deadline != kNever ? deadlines_.emplace(deadline, &entry) : deadlines_.end();
        if (entry.deadline_ != kNever) deadlines_.erase(entry.place_);
        entry.deadline_ = deadline;
        entry.place_ = place;
    }

    /// Removes the entry.
    Value take(Entry& entry) {
        set_bytes(entry, 0);
        set_deadline(entry, kNever);
        OfOwner& mine = entry.owner_->second;
        mine.entries.erase(&entry);
        if (mine.entries.empty()) owners_.erase(entry.owner_);
        Value value = std::move(entry.value);
        entries_.erase(entries_.find(*entry.key_));
        return value;
    }

    /// Null for none.
    template <class Name>
    Entry* find(const Name& key) {
        const auto found = entries_.find(key);
        return found == entries_.end() ? nullptr : &found->second;
    }
    template <class Name>
    const Entry* find(const Name& key) const {
        const auto found = entries_.find(key);
        return found == entries_.end() ? nullptr : &found->second;
    }

    /// The entry with the earliest deadline; null where none has one.
    Entry* first() { return deadlines_.empty() ? nullptr : deadlines_.begin()->second; }
    /// The same, if its deadline is not later than `now`.
    Entry* first_due(SteadyTime now) {
        Entry* const entry = first();
        return entry != nullptr && entry->deadline() <= now ? entry : nullptr;
    }
    /// The entry of that owner with the earliest deadline; null if none has one. Goes through earlier ones of others.
    template <class Name>
    Entry* first_of(const Name& owner) {
        const auto found = std::find_if(deadlines_.begin(), deadlines_.end(),
                                        [&](const auto& one) { return one.second->owner() == owner; });
        return found == deadlines_.end() ? nullptr : found->second;
    }
    /// An owner with more than so many entries or bytes; null for none. Goes through all owners.
    const Owner* owner_above(Sums sums) const {
        const auto found = std::find_if(owners_.begin(), owners_.end(), [&](const auto& one) {
            return one.second.entries.size() > sums.entries || one.second.bytes > sums.bytes;
        });
        return found == owners_.end() ? nullptr : &found->first;
    }
    /// Removes and returns the values of all entries that `is_wanted(entry)` selects.
    template <class Wanted>
    std::vector<Value> take_if(Wanted is_wanted) {
        std::vector<Value> taken;
        for (auto next = entries_.begin(); next != entries_.end();) {
            Entry& entry = (next++)->second;
            if (!is_wanted(std::as_const(entry))) continue;
            take_into(taken, entry);
        }
        return taken;
    }
    /// Removes and returns the values of all entries whose deadline is not later than `now`.
    std::vector<Value> take_due(SteadyTime now) {
        std::vector<Value> taken;
        while (Entry* const entry = first_due(now))
            take_into(taken, *entry);
        return taken;
    }
    /// Any entry of that owner; null for none.
    template <class Name>
    Entry* any_of(const Name& owner) const {
        const auto found = owners_.find(owner);
        return found == owners_.end() ? nullptr : *found->second.entries.begin();
    }

    Sums sums() const { return {entries_.size(), bytes_}; }
    template <class Name>
    Sums sums_of(const Name& owner) const {
        const auto found = owners_.find(owner);
        return found == owners_.end() ? Sums{} : Sums{found->second.entries.size(), found->second.bytes};
    }

    /// All entries by key, as a map does.
    const std::map<Key, Entry, std::less<>>& entries() const { return entries_; }

private:
    /// Makes room before it removes the entry: a value that found none would be destroyed under the user's lock.
    void take_into(std::vector<Value>& taken, Entry& entry) {
        if (taken.size() == taken.capacity()) taken.reserve(2 * taken.size() + 4);
        taken.push_back(take(entry));
    }

    std::map<Key, Entry, std::less<>> entries_;
    Owners owners_;
    Deadlines deadlines_;
    std::uint64_t bytes_ = 0;
};

}  // namespace shared_tensor
