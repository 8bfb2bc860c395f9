#include "server/files/files.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes/compression.hpp"
#include "base/bytes/xor.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::uint64_t kLongest = std::uint64_t{4} << 20;

struct Difference {
    Digest::Value digest;  ///< of the range
    std::vector<std::byte> bytes;
};

/// Nullopt if the range cannot be compared.
std::optional<Difference> difference(const tensor::TensorFile& file, const tensor::TensorFile& base,
                                     const net::ByteRange& range) {
    if (range.first < file.head.size() || range.count > kLongest || file.elements.size() != base.elements.size())
        return std::nullopt;
    Digest digest;
    std::vector<std::byte> bytes(static_cast<std::size_t>(range.count));
    std::uint64_t begin = file.head.size();
    for (std::size_t i = 0; i < file.elements.size() && begin < range.first + range.count; ++i) {
        const tensor::ElementReader &now = file.elements[i], &before = base.elements[i];
        if (now.size() != before.size()) return std::nullopt;
        const std::uint64_t first = std::max(begin, range.first),
                            end = std::min(begin + now.size(), range.first + range.count);
        if (first < end) {
            if (now.data() == nullptr || before.data() == nullptr) return std::nullopt;
            std::byte* const to = bytes.data() + (first - range.first);
            const auto count = static_cast<std::size_t>(end - first);
            digest.update({now.data() + (first - begin), count});
            std::copy_n(now.data() + (first - begin), count, to);
            xor_into({to, count}, {before.data() + (first - begin), count});
        }
        begin += now.size();
    }
    return Difference{digest.value(), std::move(bytes)};
}

}  // namespace

std::string digests_of(const tensor::TensorFile& file, std::uint64_t block) {
    std::string digests;
    for (const tensor::ElementReader& one : file.elements) {
        for (std::uint64_t at = 0; at < one.size(); at += block) {
            Digest digest;
            tensor::ElementPieces pieces(one, at, std::min(block, one.size() - at));
            for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next())
                digest.update(piece);
            for (const std::byte byte : digest.value())
                digests.push_back(static_cast<char>(byte));
        }
    }
    return digests;
}

std::optional<std::vector<BodyPart>> delta_of(const tensor::TensorFile& file, const tensor::TensorFile& base,
                                              const net::ByteRange& range) {
    const auto found = difference(file, base, range);
    if (!found) return std::nullopt;
    const auto frame = compress_if_smaller(found->bytes, {Coding::zstd, 1});
    if (!frame) return std::nullopt;
    const auto digest = std::make_shared<const Digest::Value>(found->digest);
    return std::vector<BodyPart>{{*digest, digest}, {frame->bytes(), frame->owner}};
}

}  // namespace shared_tensor::server
