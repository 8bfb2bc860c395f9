#include "runtime/tables/upload_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shared_tensor::runtime {

Upload::Phase Upload::settled(SteadyTime deadline) const {
    auto state = state_.lock();
    (void)state.wait_until(
        deadline, [](const State& now) { return now.phase != Phase::opening && now.phase != Phase::publishing; });
    return state->phase;
}

void Upload::opened(MemoryBlock block, std::shared_ptr<const void> share) {
    state_.with([&](State& state) {
        state.phase = Phase::open;
        state.block = std::move(block);
        state.share = std::move(share);
    });
    state_.notify_all();
}

Upload::Taken Upload::take(std::uint64_t first, std::span<const std::byte> bytes, SteadyTime now) {
    const NumberRange whole{first, first + bytes.size()};
    MemoryBlock block;
    std::vector<NumberRange> wanted;
    const bool fits = state_.with([&](State& state) {
        if (state.phase != Phase::open) return true;
        if (state.taken.ranges() >= kMostRanges && !state.taken.touches(whole)) return false;
        wanted = state.taken.missing(whole);
        state.taken.insert(whole);
        block = state.block;
        return true;
    });
    if (!fits) return Taken::too_many_gaps;
    last_used_.store(now, std::memory_order_relaxed);
    for (const auto& part : wanted) {
        std::memcpy(block.data + part.first, bytes.data() + (part.first - first),
                    static_cast<std::size_t>(part.end - part.first));
    }
    return state_.with([&](State& state) {
        if (state.phase != Phase::open) return Taken::more;
        for (const auto& part : wanted)
            state.there.insert(part);
        if (state.there.count() < form_.size) return Taken::more;
        state.phase = Phase::publishing;
        return Taken::all;
    });
}

MemoryBlock Upload::block() const { return state_.get(&State::block); }

void Upload::published(std::uint64_t version, SteadyTime now) {
    last_used_.store(now, std::memory_order_relaxed);
    end(Phase::published, version, true);
}

void Upload::drop() { end(Phase::dropped, 0, true); }

bool Upload::abandon() { return end(Phase::dropped, 0, false); }

/// Releases the upload's memory without the lock. After publication only the readers keep it.
bool Upload::end(Phase phase, std::uint64_t version, bool by_publisher) {
    MemoryBlock block;
    std::shared_ptr<const void> share;
    const bool ended = state_.with([&](State& state) {
        const bool is_open = state.phase == Phase::opening || state.phase == Phase::open;
        if (!is_open && !(by_publisher && state.phase == Phase::publishing)) return false;
        state.phase = phase;
        state.version = version;
        is_published_.store(phase == Phase::published, std::memory_order_relaxed);
        std::swap(block, state.block);
        share.swap(state.share);
        state.taken = {};
        return true;
    });
    if (ended) state_.notify_all();
    return ended;
}

Upload::Progress Upload::progress() const {
    return state_.with([&](const State& state) {
        Progress progress{state.phase, state.there.count(), state.version, {}};
        if (state.phase == Phase::open) progress.missing = state.there.missing({0, form_.size}, kMostGaps);
        return progress;
    });
}

/// Reserves and allocates the memory of an upload. It is counted until the upload ends.
std::optional<UploadTable::Full> UploadTable::fill(Upload& upload, const Payer& payer, const TakeBlock& take) const {
    const std::uint64_t bytes = upload.form().size;
    const std::uint64_t most = payer.may_have_all ? limits_.max_bytes : limits_.max_client_bytes();
    const char* const whose = payer.may_have_all ? " bytes (" : " bytes (half of ";
    if (bytes > most) return Full{"a file of at most " + std::to_string(most) + whose + "--max-upload-bytes)", true};
    auto full = used_->with([&](Used& used) -> std::optional<Full> {
        const std::uint64_t all = used.sums().bytes, mine = used.sums_of(payer.account).bytes;
        if (bytes > limits_.max_bytes - all)
            return Full{"uploads of " + std::to_string(all) + " bytes are under way (--max-upload-bytes)"};
        if (bytes > most - std::min(mine, most)) {
            return Full{"uploads of yours of " + std::to_string(mine) +
                        " bytes are under way (at most half of --max-upload-bytes)"};
        }
        used.add(&upload, payer.account, bytes, Used::kNever, {});
        return std::nullopt;
    });
    if (full) return full;
    std::shared_ptr<const void> share(used_.get(), [used = used_, key = &upload](const void*) {
        used->with([&](Used& all) { all.take(*all.find(key)); });
    });
    upload.opened(bytes > 0 ? take(bytes) : MemoryBlock{}, std::move(share));
    return std::nullopt;
}

UploadTable::Opened UploadTable::make(const UploadForm& form, const Payer& payer, const TakeBlock& take) const {
    auto upload = std::make_shared<Upload>(form, now());
    if (auto full = fill(*upload, payer, take)) return std::move(*full);
    return upload;
}

bool UploadTable::has_room(const All& all, const std::string& account) const {
    return all.sums().entries - all.sums_of(kPublished).entries < limits_.max_uploads &&
           all.sums_of(account).entries < limits_.max_client_uploads();
}

UploadTable::Opened UploadTable::open(const Key& key, const UploadForm& form, const Payer& payer,
                                      const TakeBlock& take) {
    const SteadyTime now = clock_->now();
    const auto made = std::make_shared<Upload>(form, now);
    UploadPointer replaced;  // destroyed without the lock
    auto opened = all_.with([&](All& all) -> Opened {
        if (All::Entry* const known = all.find(key)) {
            if (!known->value->is_published() || known->value->form() == form) return known->value;
            replaced = all.take(*known);
        } else if (!has_room(all, payer.account)) {
            return Full{"too many uploads are open (--max-uploads, of which one client may have half)"};
        }
        all.add(key, payer.account, 0, now + limits_.ttl, made);
        return made;
    });
    const auto* upload = std::get_if<UploadPointer>(&opened);
    if (upload == nullptr || *upload != made) return opened;
    try {
        if (auto full = fill(*made, payer, take)) {
            remove(key, made);
            return std::move(*full);
        }
    } catch (...) {
        remove(key, made);
        throw;
    }
    return made;
}

UploadTable::UploadPointer UploadTable::find(const Key& key) const {
    return all_.with([&](const All& all) {
        const All::Entry* const found = all.find(key);
        return found != nullptr ? found->value : nullptr;
    });
}

void UploadTable::published(const Key& key, const UploadPointer& upload, std::uint64_t version) {
    upload->published(version, now());
    const bool too_many = all_.with([&](All& all) {
        All::Entry* const found = all.find(key);
        if (found != nullptr && found->value == upload) {
            const SteadyTime end = found->deadline();
            all.take(*found);
            all.add(key, std::string(kPublished), 0, end, upload);
        }
        return all.sums_of(kPublished).entries > kMostPublished;
    });
    if (key.id.empty() || too_many) remove(key, upload);
}

bool UploadTable::remove(const Key& key, const UploadPointer& upload) {
    const bool was_there = all_.with([&](All& all) {
        All::Entry* const found = all.find(key);
        if (found == nullptr || found->value != upload) return false;
        all.take(*found);  // the caller keeps it alive
        return true;
    });
    return upload->abandon() && was_there;
}

std::shared_ptr<const void> UploadTable::part_begins(const Key& key) {
    class PartOnItsWay {
    public:
        PartOnItsWay(UploadTable& table, const Key& key) : table_(table), key_(key) {
            table_.parts_.with([&](auto& parts) { ++parts[key_]; });
        }
        PartOnItsWay(const PartOnItsWay&) = delete;
        PartOnItsWay& operator=(const PartOnItsWay&) = delete;
        ~PartOnItsWay() { table_.part_ends(key_); }

    private:
        UploadTable& table_;
        const Key key_;
    };
    return std::make_shared<const PartOnItsWay>(*this, key);
}

void UploadTable::part_ends(const Key& key) noexcept {
    if (const auto upload = find(key)) upload->used(now());
    parts_.with([&](auto& parts) {
        const auto found = parts.find(key);
        if (--found->second == 0) parts.erase(found);
    });
}

/// A part extends its upload without the lock of this table, so the deadlines in the table may be too early.
void UploadTable::expire() {
    const SteadyTime now = clock_->now();
    std::vector<UploadPointer> ended;  // destroyed without the lock
    all_.with([&](All& all) {
        while (All::Entry* const found = all.first_due(now)) {
            const bool is_fed = parts_.with([&](const auto& parts) { return parts.contains(found->key()); });
            const SteadyTime end = (is_fed ? now : found->value->last_used()) + limits_.ttl;
            if (end > now)
                all.set_deadline(*found, end);
            else
                ended.push_back(all.take(*found));
        }
    });
    for (const UploadPointer& upload : ended)
        upload->abandon();
}

UploadTable::Stats UploadTable::stats() const {
    Stats stats;
    stats.uploads = all_.with([](const All& all) { return all.sums().entries - all.sums_of(kPublished).entries; });
    stats.bytes = used_->with([](const Used& used) { return used.sums().bytes; });
    return stats;
}

}  // namespace shared_tensor::runtime
