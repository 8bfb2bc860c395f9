#include "client/transfers/known_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/bytes/xor.hpp"
#include "base/concurrency/in_parallel.hpp"
#include "tensor/element_reader.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::size_t kDigest = std::tuple_size_v<Digest::Value>;
constexpr std::uint64_t kUnit = 64 * kDeltaBlock;  ///< what one thread compares at once

std::uint64_t blocks_in(std::uint64_t bytes) { return (bytes + kDeltaBlock - 1) / kDeltaBlock; }

std::span<const std::byte> bytes_of(const tensor::TensorMap& tensors, const std::string& member) {
    const auto found = tensors.find(member);
    if (found == tensors.end()) return {};
    const tensor::ElementReader elements(found->second);
    if (elements.data() == nullptr) return {};
    return {elements.data(), static_cast<std::size_t>(elements.size())};
}

/// Joins a range with the last one if it follows at once.
void add(std::vector<net::ByteRange>& ranges, const net::ByteRange& range) {
    if (!ranges.empty() && ranges.back().first + ranges.back().count == range.first) {
        ranges.back().count += range.count;
    } else {
        ranges.push_back(range);
    }
}

}  // namespace

KnownBytes::KnownBytes(tensor::TensorMap known, const tensor::SafetensorsHeader& header) : tensors_(std::move(known)) {
    std::vector<tensor::Manifest::const_iterator> order;
    for (auto at = header.manifest.begin(); at != header.manifest.end(); ++at)
        order.push_back(at);
    std::sort(order.begin(), order.end(),
              [](const auto& one, const auto& other) { return one->second.offset < other->second.offset; });
    std::uint64_t digest = 0;
    for (const auto& member : order) {
        const auto& [dtype, shape, offset, bytes] = member->second;
        std::span<const std::byte> before = bytes_of(tensors_, member->first);
        is_complete_ = is_complete_ && before.size() == bytes;
        for (std::uint64_t done = 0; done < bytes; done += kUnit) {
            const std::uint64_t count = std::min(kUnit, bytes - done);
            const auto part = before.first(std::min<std::size_t>(before.size(), count));
            units_.push_back({{header.size + offset + done, count}, digest, part});
            before = before.subspan(part.size());
            digest += blocks_in(count);
        }
    }
}

std::vector<net::ByteRange> KnownBytes::copy(std::span<const std::byte> digests, std::span<std::byte> file,
                                             std::uint64_t there, std::size_t threads) {
    const std::uint64_t count = units_.empty() ? 0 : units_.back().digest + blocks_in(units_.back().place.count);
    if (digests.size() != count * kDigest) return {{there, file.size() - there}};
    std::vector<std::byte> own(digests.size());  // digests of the earlier version
    std::vector<std::vector<net::ByteRange>> missing(units_.size());
    in_parallel(threads, units_.size(), [&](std::uint64_t i) {
        const Unit& unit = units_[i];
        for (std::uint64_t at = 0; at < unit.place.count; at += kDeltaBlock) {
            const net::ByteRange block{unit.place.first + at, std::min(kDeltaBlock, unit.place.count - at)};
            const std::uint64_t end = block.first + block.count;
            bool is_same = false;
            if (unit.known.size() >= at + block.count) {
                const auto known = unit.known.subspan(at, block.count);
                const Digest::Value digest = Digest::of(known);
                const std::size_t place = (unit.digest + at / kDeltaBlock) * kDigest;
                std::memcpy(own.data() + place, digest.data(), kDigest);
                is_same = std::memcmp(digests.data() + place, digest.data(), kDigest) == 0;
                if (is_same && end > there) std::memcpy(file.data() + block.first, known.data(), known.size());
            }
            if (is_same || end <= there) continue;
            const std::uint64_t first = std::max(block.first, there);
            add(missing[i], {first, end - first});
        }
    });
    if (is_complete_) base_ = Digest::of(own);
    std::vector<net::ByteRange> ranges;
    for (const auto& some : missing) {
        for (const net::ByteRange& range : some)
            add(ranges, range);
    }
    return ranges;
}

void KnownBytes::undo_xor(const net::ByteRange& range, std::span<std::byte> bytes) const {
    auto unit = std::upper_bound(units_.begin(), units_.end(), range.first,
                                 [](std::uint64_t first, const Unit& one) { return first < one.place.first; });
    if (unit != units_.begin()) --unit;
    for (; unit != units_.end() && unit->place.first < range.first + range.count; ++unit) {
        const std::uint64_t first = std::max(range.first, unit->place.first);
        if (first >= unit->place.first + unit->known.size()) continue;
        xor_into(bytes.subspan(first - range.first), unit->known.subspan(first - unit->place.first));
    }
}

}  // namespace shared_tensor::client
