#include "server/state/record_file.hpp"

#include <lmdb.h>

#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/bytes/digest.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/system/descriptor_store.hpp"

namespace shared_tensor::server {

namespace {

void check(int error) {
    if (error == 0) return;
    if (error == MDB_MAP_FULL)
        throw NotStored(
            "there is no room for records of what outlives this process: start the server with a higher "
            "--max-state-bytes, or delete named tensors");
    if (error == ENOMEM || error == ENOSPC) throw std::bad_alloc();
    throw std::runtime_error(std::string("the records of the server's state: ") + ::mdb_strerror(error));
}

/// Room for what deletes, which needs copies of the pages that change.
constexpr std::size_t kReserve = std::size_t{1} << 20;
constexpr std::size_t kPagesOfChange = 8;  // that a new record takes beside its own

/// LMDB's keys have at most 511 bytes, and ours may have more.
std::string name_of(char kind, std::string_view key) {
    const Sha256::Value digest = Sha256::of(std::as_bytes(std::span(key)));
    return std::string(1, kind).append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

MDB_val value_of(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }

std::string_view text_of(const MDB_val& value) { return {static_cast<const char*>(value.mv_data), value.mv_size}; }

}  // namespace

RecordFile::RecordFile(std::shared_ptr<const UniqueFd> memory, std::uint64_t max_bytes)
    : memory_(std::move(memory)), max_bytes_(max_bytes) {
    check(::mdb_env_create(&env_));
    try {
        check(::mdb_env_set_mapsize(env_, static_cast<std::size_t>(max_bytes) + kReserve));
        const std::string path = "/proc/self/fd/" + std::to_string(memory_->get());
        // The memory outlives the process without a sync, and no other process opens it while this one lives.
        check(::mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NORDAHEAD, 0600));
        change([&](MDB_txn* step) { return ::mdb_dbi_open(step, nullptr, 0, &table_); });
    } catch (...) {
        ::mdb_env_close(env_);
        throw;
    }
}

RecordFile::~RecordFile() { ::mdb_env_close(env_); }

template <class Change>
void RecordFile::change(Change make) {
    const std::lock_guard lock(mutex_);
    MDB_txn* step = nullptr;
    check(::mdb_txn_begin(env_, nullptr, 0, &step));
    if (const int error = make(step); error != 0) {
        ::mdb_txn_abort(step);
        check(error);
    }
    check(::mdb_txn_commit(step));
}

bool RecordFile::has_room(std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    MDB_envinfo info{};
    MDB_stat stat{};
    check(::mdb_env_info(env_, &info));
    check(::mdb_env_stat(env_, &stat));
    std::size_t pages = info.me_last_pgno + 1 + kPagesOfChange + bytes / stat.ms_psize + 1;
    if (pages * stat.ms_psize <= max_bytes_) return true;
    MDB_txn* step = nullptr;
    check(::mdb_txn_begin(env_, nullptr, MDB_RDONLY, &step));
    const AtEnd ended([&] { ::mdb_txn_abort(step); });
    constexpr MDB_dbi kFree = 0;  // LMDB's table of free pages: each entry begins with their number
    MDB_cursor* cursor = nullptr;
    check(::mdb_cursor_open(step, kFree, &cursor));
    const AtEnd closed([&] { ::mdb_cursor_close(cursor); });
    MDB_val key{}, entry{};
    int error = ::mdb_cursor_get(cursor, &key, &entry, MDB_FIRST);
    for (; error == 0; error = ::mdb_cursor_get(cursor, &key, &entry, MDB_NEXT)) {
        std::size_t free = 0;
        std::memcpy(&free, entry.mv_data, sizeof free);
        pages -= free;
    }
    if (error != MDB_NOTFOUND) check(error);
    return pages * stat.ms_psize <= max_bytes_;
}

void RecordFile::put(char kind, std::string_view key, std::string_view record, Room room) {
    if (room == Room::for_all && !has_room(record.size())) check(MDB_MAP_FULL);
    const std::string name = name_of(kind, key);
    change([&](MDB_txn* step) {
        MDB_val at = value_of(name), value = value_of(record);
        return ::mdb_put(step, table_, &at, &value, 0);
    });
}

void RecordFile::erase(char kind, std::string_view key) {
    const std::string name = name_of(kind, key);
    change([&](MDB_txn* step) {
        MDB_val at = value_of(name);
        const int error = ::mdb_del(step, table_, &at, nullptr);
        return error == MDB_NOTFOUND ? 0 : error;
    });
}

void RecordFile::for_each(char kind, const std::function<void(std::string_view record)>& found) const {
    const std::lock_guard lock(mutex_);
    MDB_txn* step = nullptr;
    check(::mdb_txn_begin(env_, nullptr, MDB_RDONLY, &step));
    const AtEnd ended([&] { ::mdb_txn_abort(step); });
    MDB_cursor* cursor = nullptr;
    check(::mdb_cursor_open(step, table_, &cursor));
    const AtEnd closed([&] { ::mdb_cursor_close(cursor); });
    const std::string first(1, kind);
    MDB_val key = value_of(first), record{};
    int error = ::mdb_cursor_get(cursor, &key, &record, MDB_SET_RANGE);
    for (; error == 0 && text_of(key).starts_with(first); error = ::mdb_cursor_get(cursor, &key, &record, MDB_NEXT))
        found(text_of(record));
    if (error != MDB_NOTFOUND) check(error);
}

void RecordFile::clear() {
    change([&](MDB_txn* step) { return ::mdb_drop(step, table_, 0); });
}

std::uint64_t RecordFile::bytes() const {
    MDB_envinfo info{};
    MDB_stat stat{};
    const std::lock_guard lock(mutex_);
    check(::mdb_env_info(env_, &info));
    check(::mdb_env_stat(env_, &stat));
    return (std::uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
}

}  // namespace shared_tensor::server
