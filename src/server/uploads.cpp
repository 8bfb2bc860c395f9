#include "server/uploads.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shared_tensor::server {

Upload::Upload(UploadForm form, tensor::Block block, std::shared_ptr<const void> share, SteadyTime now)
    : form_(std::move(form)), block_(std::move(block)), share_(std::move(share)), last_used_(now) {}

bool Upload::take(std::uint64_t first, std::span<const std::byte> bytes, SteadyTime now) {
    const NumberRange whole{first, first + bytes.size()};
    last_used_.store(now, std::memory_order_relaxed);
    const auto wanted = state_.with([&](State& state) {
        auto parts = state.taken.missing(whole);
        state.taken.insert(whole);
        return parts;
    });
    for (const auto& part : wanted) {
        std::memcpy(block_.data + part.first, bytes.data() + (part.first - first),
                    static_cast<std::size_t>(part.end - part.first));
    }
    return state_.with([&](State& state) {
        for (const auto& part : wanted)
            state.there.insert(part);
        return state.there.count() == form_.size && (!wanted.empty() || form_.size == 0);
    });
}

bool Upload::expect(const Digest::Value& digest) {
    return state_.with([&](State& state) {
        if (!state.digest) state.digest = digest;
        return *state.digest == digest;
    });
}

std::optional<Digest::Value> Upload::expected() const {
    return state_.with([](const State& state) { return state.digest; });
}

Upload::Progress Upload::progress() const {
    return state_.with([&](const State& state) {
        return Progress{state.there.count(), state.there.missing({0, form_.size}, kMostGaps)};
    });
}

Uploads::Full Uploads::too_many() const {
    return {std::to_string(limits_.max_uploads) + " uploads are under way, as many as may be (--max-uploads)"};
}

/// Counted until the last who writes to it has done.
std::variant<std::shared_ptr<const void>, Uploads::Full> Uploads::share(std::uint64_t bytes) const {
    if (bytes > limits_.max_bytes)
        return Full{"a file of at most " + std::to_string(limits_.max_bytes) + " bytes (--max-upload-bytes)", true};
    const std::uint64_t others = used_->with([&](std::uint64_t& used) {
        const std::uint64_t before = used;
        if (bytes <= limits_.max_bytes - used) used += bytes;
        return before;
    });
    if (bytes > limits_.max_bytes - others)
        return Full{"uploads of " + std::to_string(others) + " bytes are under way (--max-upload-bytes)"};
    return std::shared_ptr<const void>(
        used_.get(), [used = used_, bytes](const void*) { used->with([&](std::uint64_t& sum) { sum -= bytes; }); });
}

Uploads::Opened Uploads::open(const Key& key, const UploadForm& form, const tensor::TakeBlock& take) {
    const auto known = find(key);
    if (const auto* upload = std::get_if<std::shared_ptr<Upload>>(&known)) return *upload;
    if (const auto* done = std::get_if<Done>(&known); done != nullptr && done->size == form.size) return *done;
    if (stats().uploads >= limits_.max_uploads) return too_many();
    const Opened made = make(form, take);
    const auto* upload = std::get_if<std::shared_ptr<Upload>>(&made);
    if (upload == nullptr) return made;
    return state_.with([&](State& state) -> Opened {
        if (const auto found = state.open.find(key); found != state.open.end()) return found->second;
        if (state.open.size() >= limits_.max_uploads) return too_many();
        state.done.erase(key);
        state.open.emplace(key, *upload);
        return *upload;
    });
}

Uploads::Opened Uploads::make(const UploadForm& form, const tensor::TakeBlock& take) const {
    auto share_of_it = share(form.size);
    if (auto* full = std::get_if<Full>(&share_of_it)) return std::move(*full);
    tensor::Block block = form.size > 0 ? take(form.size) : tensor::Block{};
    return std::make_shared<Upload>(form, std::move(block),
                                    std::get<std::shared_ptr<const void>>(std::move(share_of_it)), now());
}

Uploads::Found Uploads::find(const Key& key) const {
    return state_.with([&](const State& state) -> Found {
        if (const auto open = state.open.find(key); open != state.open.end()) return open->second;
        if (const auto done = state.done.find(key); done != state.done.end()) return done->second.done;
        return std::monostate();
    });
}

bool Uploads::remove(const Key& key, const Upload* upload) {
    std::shared_ptr<Upload> removed;  // goes without the lock
    return state_.with([&](State& state) {
        const auto found = state.open.find(key);
        if (found == state.open.end() || (upload != nullptr && found->second.get() != upload)) return false;
        removed = std::move(found->second);
        state.open.erase(found);
        return true;
    });
}

void Uploads::finish(const Key& key, const Upload& upload, std::uint64_t version) {
    const SteadyTime now = clock_->now();
    if (!remove(key, &upload) || key.id.empty()) return;
    state_.with([&](State& state) {
        if (state.done.size() < kMostDone) state.done[key] = {{upload.form().size, version}, now};
    });
}

void Uploads::expire() {
    const SteadyTime oldest = clock_->now() - limits_.ttl;
    std::vector<std::shared_ptr<Upload>> ended;  // go without the lock
    state_.with([&](State& state) {
        for (auto at = state.open.begin(); at != state.open.end();) {
            if (at->second->last_used() > oldest) {
                ++at;
            } else {
                ended.push_back(std::move(at->second));
                at = state.open.erase(at);
            }
        }
        std::erase_if(state.done, [&](const auto& one) { return one.second.at <= oldest; });
    });
}

Uploads::Stats Uploads::stats() const {
    Stats stats;
    stats.uploads = state_.with([](const State& state) { return state.open.size(); });
    stats.bytes = used_->with([](std::uint64_t used) { return used; });
    return stats;
}

}  // namespace shared_tensor::server
