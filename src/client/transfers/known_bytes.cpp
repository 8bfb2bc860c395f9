#include "client/transfers/known_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes/digest.hpp"
#include "tensor/element_reader.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::size_t kDigest = std::tuple_size_v<Digest::Value>;
constexpr std::uint64_t kUnit = 64 * kDeltaBlock;  ///< what one thread compares at once

std::uint64_t blocks_in(std::uint64_t bytes) { return (bytes + kDeltaBlock - 1) / kDeltaBlock; }

/// A part of a member.
struct Unit {
    net::ByteRange place;              ///< in the file
    std::uint64_t digest = 0;          ///< index of the first block's
    std::span<const std::byte> known;  ///< the same part of the earlier version, which may be shorter
};

std::vector<Unit> units_of(const tensor::TensorMap& known, const tensor::SafetensorsHeader& header) {
    std::vector<tensor::Manifest::const_iterator> order;
    for (auto at = header.manifest.begin(); at != header.manifest.end(); ++at)
        order.push_back(at);
    std::sort(order.begin(), order.end(),
              [](const auto& one, const auto& other) { return one->second.offset < other->second.offset; });
    std::vector<Unit> units;
    std::uint64_t digest = 0;
    for (const auto& member : order) {
        const auto found = known.find(member->first);
        std::span<const std::byte> before;
        if (found != known.end()) {
            const tensor::ElementReader elements(found->second);
            if (elements.data() != nullptr) before = {elements.data(), static_cast<std::size_t>(elements.size())};
        }
        const auto& [dtype, shape, offset, bytes] = member->second;
        for (std::uint64_t done = 0; done < bytes; done += kUnit) {
            const std::uint64_t count = std::min(kUnit, bytes - done);
            units.push_back({{header.size + offset + done, count}, digest, before});
            before = before.subspan(std::min<std::size_t>(before.size(), kUnit));
            digest += blocks_in(count);
        }
    }
    return units;
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

std::vector<net::ByteRange> copy_known(const tensor::TensorMap& known, const tensor::SafetensorsHeader& header,
                                       std::span<const std::byte> digests, std::span<std::byte> file,
                                       std::uint64_t there, std::size_t threads) {
    const std::vector<Unit> units = units_of(known, header);
    const std::uint64_t count = units.empty() ? 0 : units.back().digest + blocks_in(units.back().place.count);
    if (digests.size() != count * kDigest) return {{there, file.size() - there}};
    std::vector<std::vector<net::ByteRange>> missing(units.size());
    in_parallel(threads, units.size(), [&](std::uint64_t i) {
        const Unit& unit = units[i];
        for (std::uint64_t at = 0; at < unit.place.count; at += kDeltaBlock) {
            const net::ByteRange block{unit.place.first + at, std::min(kDeltaBlock, unit.place.count - at)};
            const std::uint64_t end = block.first + block.count;
            if (end <= there) continue;
            const auto wanted = digests.subspan((unit.digest + at / kDeltaBlock) * kDigest, kDigest);
            if (unit.known.size() >= at + block.count) {
                const auto same = unit.known.subspan(at, block.count);
                const Digest::Value digest = Digest::of(same);
                if (std::equal(digest.begin(), digest.end(), wanted.begin())) {
                    std::memcpy(file.data() + block.first, same.data(), same.size());
                    continue;
                }
            }
            const std::uint64_t first = std::max(block.first, there);
            add(missing[i], {first, end - first});
        }
    });
    std::vector<net::ByteRange> ranges;
    for (const auto& some : missing) {
        for (const net::ByteRange& range : some)
            add(ranges, range);
    }
    return ranges;
}

}  // namespace shared_tensor::client
