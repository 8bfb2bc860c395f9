#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor {

/// A content coding (RFC 9110, section 8.4.1; zstd: RFC 8878). The enumerators have the names that HTTP uses, except
/// `none`.
enum class Coding { none, zstd, gzip };
std::string_view name_of(Coding coding);  ///< "identity", "zstd", "gzip"
/// Nullopt for an unknown coding. "x-gzip" is gzip.
std::optional<Coding> parse_coding(std::string_view name);

/// A coding and its level: 1 is fast, 9 is small, for zstd and gzip alike.
struct Compression {
    Coding coding = Coding::none;
    int level = 1;
    explicit operator bool() const { return coding != Coding::none; }
};

/// Reads "zstd" or "none". Throws std::invalid_argument for any other text, and for a level that is not 1 to 9.
Compression parse_compression(std::string_view name, int level);

/// Whether a header field's list of codings, with their weights, names this coding and does not reject it.
bool accepts(std::string_view list, Coding coding);

/// The content codings of HTTP that a server offers, in order of choice.
struct CodingOffer {
    std::vector<Coding> codings{};
    int level = 1;

    /// Reads "zstd, gzip" or "none". Throws std::invalid_argument for any other text, and for a level that is not 1 to
    /// 9.
    static CodingOffer parse(std::string_view list, int level);
    /// The first coding of the offer that the header field `accepted` accepts.
    Compression choose(std::string_view accepted) const;
    /// For tensors inside messages: zstd, if the offer has it, else none.
    Compression for_tensors() const;
};

/// Compressed bytes and the memory that owns them.
struct CompressedBytes {
    std::shared_ptr<const std::byte[]> owner;
    std::size_t size = 0;
    std::span<const std::byte> bytes() const { return {owner.get(), size}; }
};

/// Compresses `bytes`. Nullopt if that saves less than a tenth, or for fewer than 1 KiB. A probe of the first 64 KiB
/// decides first, so that random bytes cost little. Blocks: a few hundred MB per second. Throws std::bad_alloc.
std::optional<CompressedBytes> compress_if_smaller(std::span<const std::byte> bytes, Compression how);

/// Bytes of compressed bodies in both directions: compressed, as they were sent, and uncompressed.
struct CompressionCounts {
    std::uint64_t compressed_in = 0, uncompressed_in = 0, compressed_out = 0, uncompressed_out = 0;
    bool operator==(const CompressionCounts&) const = default;
};

/// Sums of many CompressionCounts. Thread-safe.
class CompressionTotals {
public:
    void add(const CompressionCounts& counts) {
        if (counts == CompressionCounts()) return;
        totals_.with([&](CompressionCounts& totals) {
            totals.compressed_in += counts.compressed_in;
            totals.uncompressed_in += counts.uncompressed_in;
            totals.compressed_out += counts.compressed_out;
            totals.uncompressed_out += counts.uncompressed_out;
        });
    }
    CompressionCounts counts() const {
        return totals_.with([](const CompressionCounts& totals) { return totals; });
    }

private:
    Guarded<CompressionCounts> totals_;
};

/// The bytes are not valid in their coding, or their content is longer or shorter than expected.
class BadCompression : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The content is longer than allowed.
class TooLong : public BadCompression {
public:
    using BadCompression::BadCompression;
};

/// Decompresses zstd into `out`, which the result must fill to the last byte. Throws BadCompression. Needs no memory
/// whose size the input could choose.
void decompress_zstd(std::span<const std::byte> bytes, std::span<std::byte> out);

/// Decompresses content of unknown size, at most `most` bytes. Calls `grows` with the new size before it takes more
/// memory; an exception of `grows` is passed on. Throws BadCompression and std::bad_alloc.
std::vector<std::byte> decompress(Coding coding, std::span<const std::byte> bytes, std::size_t most,
                                  const std::function<void(std::size_t)>& grows = {});

/// The size that zstd's header tells of the bytes as they were; nothing where it tells none.
std::optional<std::uint64_t> size_before_zstd(std::span<const std::byte> bytes);

/// Compresses piece by piece, in memory that does not grow. What zstd makes tells its size before, and has a checksum
/// that decompress() verifies; gzip has one always. One thread at a time.
class Compressor {
public:
    /// `size`: of all bytes that will come.
    Compressor(Compression how, std::uint64_t size);
    Compressor(Compressor&&) noexcept;
    ~Compressor();
    /// Receives a piece of compressed output; returns false to stop.
    using Take = std::function<bool(std::span<const std::byte>)>;
    /// Compresses the next bytes and calls `take` for each piece of output that is ready. `is_last` marks the end of
    /// the stream. Returns false when `take` did.
    bool add(std::span<const std::byte> bytes, bool is_last, const Take& take);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// Whether a probe of the first bytes of a larger body gets smaller by at least a tenth.
bool is_worth_compressing(std::span<const std::byte> first, Compression how);

}  // namespace shared_tensor
