#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes/digest.hpp"
#include "client/transfers/transfer.hpp"
#include "net/message/fields.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor::client {

/// Versions are compared in blocks of this size: their digests cost a 4096th of the file, and a block takes as long as
/// a round trip of 0.5 ms on a network of 1 Gbit/s.
inline constexpr std::uint64_t kDeltaBlock = std::uint64_t{64} << 10;

/// The bytes of a file that is fetched, as they are in an earlier version of the tensors: those of members with the
/// same name. Thread safety: copy() by one thread, then the other methods by any.
class KnownBytes {
public:
    /// Keeps the tensors of `known`.
    KnownBytes(tensor::TensorMap known, const tensor::SafetensorsHeader& header);

    /// Copies blocks that the new version has too into `file`, whose first `there` bytes have arrived and contain the
    /// header. Returns the ranges that are still missing. `digests`: of the blocks of each member, in the order of the
    /// file, 16 bytes each; if their number is another one, all bytes are missing. Blocks, on at most `threads`
    /// threads.
    std::vector<net::ByteRange> copy(std::span<const std::byte> digests, std::span<std::byte> file, std::uint64_t there,
                                     std::size_t threads);

    /// The digest of the earlier version's digests: the server recognises the version by it. Nullopt if members are
    /// missing or had another size.
    const std::optional<Digest::Value>& base() const { return base_; }
    /// Turns a range of the new version, XORed with the earlier one, into the range.
    void undo_xor(const net::ByteRange& range, std::span<std::byte> bytes) const;

private:
    /// A part of a member.
    struct Unit {
        net::ByteRange place;              ///< in the file
        std::uint64_t digest = 0;          ///< index of the first block's
        std::span<const std::byte> known;  ///< the same part of the earlier version, which may be shorter
    };

    const tensor::TensorMap tensors_;
    std::vector<Unit> units_;  ///< in the order of the file
    bool is_complete_ = true;  ///< all members are known, in the same size
    std::optional<Digest::Value> base_;
};

}  // namespace shared_tensor::client
