#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/system/unique_fd.hpp"

struct MDB_env;

namespace shared_tensor::server {

/// Records by kind and key in a memfd, by LMDB. Each change is one step: if the process is killed at any time, whoever
/// opens the memory next finds the records before or after the change. Other code of the process cannot damage them by
/// a wild pointer, because the memory is mapped for reading only.
/// Thread safety: all methods from any thread. put() takes about 10 us and the time to copy the record.
class RecordFile {
public:
    /// Opens the records in `memory`, or makes the first ones in an empty memfd. Throws std::runtime_error.
    RecordFile(std::shared_ptr<const UniqueFd> memory, std::uint64_t max_bytes);
    ~RecordFile();
    RecordFile(const RecordFile&) = delete;
    RecordFile& operator=(const RecordFile&) = delete;

    enum class Room {
        for_all,
        with_reserve  ///< 1 MiB more, for what deletes
    };
    /// Replaces the record of `key`. Throws NotStored beyond `max_bytes`; then nothing has changed.
    void put(char kind, std::string_view key, std::string_view record, Room room = Room::for_all);
    /// Does nothing if there is no such record. Has room with the reserve.
    void erase(char kind, std::string_view key);
    /// Calls `found` for all records of a kind. `found` must not use this object.
    void for_each(char kind, const std::function<void(std::string_view record)>& found) const;
    /// Removes all records.
    void clear();
    std::uint64_t bytes() const;  ///< of memory in use

private:
    template <class Change>
    void change(Change make);
    /// Whether a record of `bytes` leaves the reserve as it is.
    bool has_room(std::size_t bytes) const;

    const std::shared_ptr<const UniqueFd> memory_;
    const std::uint64_t max_bytes_;
    MDB_env* env_ = nullptr;
    unsigned table_ = 0;
    mutable std::mutex mutex_;  // there is one user of the environment at a time: it has no locks of its own
};

}  // namespace shared_tensor::server
