#include "base/bytes/compression.hpp"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "base/bytes/field_list.hpp"

namespace shared_tensor {

namespace {

constexpr std::size_t kProbe = 64 << 10;
constexpr std::size_t kWorthwhile = 1 << 10;
constexpr std::size_t kPiece = 256 << 10;
constexpr int kGzipFormat = 16 + MAX_WBITS;  // zlib.h: a gzip header instead of zlib's
constexpr int kLargestWindowLog = 27;        // RFC 8878, section 3.1.1.1.2: the window that decoders should support

struct FreeZstd {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

bool is_smaller(std::size_t compressed, std::size_t plain) { return compressed <= plain - plain / 10; }

/// One encoder for each thread: to create an encoder costs more than to compress a few bytes.
ZSTD_CCtx* zstd_encoder() {
    thread_local const std::unique_ptr<ZSTD_CCtx, FreeZstd> kContext(ZSTD_createCCtx());
    if (!kContext) throw std::bad_alloc();
    return kContext.get();
}

ZSTD_DCtx* zstd_decoder() {
    thread_local const std::unique_ptr<ZSTD_DCtx, FreeZstd> kContext(ZSTD_createDCtx());
    if (!kContext) throw std::bad_alloc();
    ZSTD_DCtx_reset(kContext.get(), ZSTD_reset_session_and_parameters);
    ZSTD_DCtx_setParameter(kContext.get(), ZSTD_d_windowLogMax, kLargestWindowLog);
    return kContext.get();
}

/// zlib counts in 32 bits.
uInt piece_of(std::size_t left) { return static_cast<uInt>(std::min<std::size_t>(left, std::size_t{1} << 30)); }

/// What one call of a coding did: how much input it read, how much output it made, whether the stream has ended.
struct Step {
    std::size_t read = 0, made = 0;
    bool ended = false;
};

[[noreturn]] void reject(Coding coding, const char* why) {
    throw BadCompression(std::string(name_of(coding)).append(": ").append(why));
}

constexpr const char* kDamaged = "the bytes are not compressed so, or damaged";
[[noreturn]] void too_long(Coding coding) {
    throw TooLong(std::string(name_of(coding)).append(": there are more bytes than there should be"));
}

/// Compresses or decompresses gzip.
class Gzip {
public:
    /// Compresses with `level`, decompresses without.
    explicit Gzip(std::optional<int> level = std::nullopt) : compresses_(level.has_value()) {
        const int made = level ? ::deflateInit2(&stream_, *level, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY)
                               : ::inflateInit2(&stream_, kGzipFormat);
        if (made != Z_OK) throw std::bad_alloc();
    }
    Gzip(const Gzip&) = delete;
    Gzip& operator=(const Gzip&) = delete;
    ~Gzip() { compresses_ ? ::deflateEnd(&stream_) : ::inflateEnd(&stream_); }

    /// `is_last`: no further bytes will be compressed.
    Step step(std::span<const std::byte> in, std::span<std::byte> out, bool is_last = false) {
        const uInt size = piece_of(in.size()), room = piece_of(out.size());
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));  // zlib only reads it
        stream_.avail_in = size;
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = room;
        const int flush = is_last && size == in.size() ? Z_FINISH : Z_NO_FLUSH;
        const int result = compresses_ ? ::deflate(&stream_, flush) : ::inflate(&stream_, flush);
        if (result == Z_MEM_ERROR) throw std::bad_alloc();
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) reject(Coding::gzip, kDamaged);
        return {size - stream_.avail_in, room - stream_.avail_out, result == Z_STREAM_END};
    }
    /// Decompresses another member after the end of one.
    void next_member() { ::inflateReset(&stream_); }

private:
    const bool compresses_;
    z_stream stream_{};
};

/// Returns the compressed size, or nullopt when `out` is too small.
std::optional<std::size_t> compress_zstd(std::span<const std::byte> bytes, int level, std::span<std::byte> out) {
    ZSTD_CCtx* context = zstd_encoder();
    const std::size_t size = ZSTD_compressCCtx(context, out.data(), out.size(), bytes.data(), bytes.size(), level);
    if (ZSTD_isError(size) != 0) return std::nullopt;
    return size;
}

std::optional<std::size_t> compress_gzip(std::span<const std::byte> bytes, int level, std::span<std::byte> out) {
    Gzip gzip(level);
    std::size_t done = 0, read = 0;
    while (done < out.size()) {
        const Step step = gzip.step(bytes.subspan(read), out.subspan(done), true);
        read += step.read;
        done += step.made;
        if (step.ended) return done;
    }
    return std::nullopt;
}

std::optional<std::size_t> compress_into(std::span<const std::byte> bytes, Compression how, std::span<std::byte> out) {
    return how.coding == Coding::zstd ? compress_zstd(bytes, how.level, out) : compress_gzip(bytes, how.level, out);
}

class Unzstd {
public:
    Step step(std::span<const std::byte> bytes, std::span<std::byte> space) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        ZSTD_outBuffer out{space.data(), space.size(), 0};
        const std::size_t rest = ZSTD_decompressStream(context_, &out, &in);
        if (ZSTD_isError(rest) != 0) reject(Coding::zstd, kDamaged);
        return {in.pos, out.pos, rest == 0};
    }
    void next_member() {}  // zstd begins a new frame by itself

private:
    ZSTD_DCtx* const context_ = zstd_decoder();
};

/// The bytes may be several members, one after the other (RFC 1952, section 2.2; frames in RFC 8878, section 3).
template <class Decoder>
std::vector<std::byte> decompress_all(Coding coding, Decoder& decoder, std::span<const std::byte> bytes,
                                      std::size_t most, const std::function<void(std::size_t)>& grows) {
    std::vector<std::byte> out;
    std::size_t done = 0, read = 0;
    while (true) {
        if (done == out.size() && done < most) {
            const std::size_t larger = std::min(most, std::max(2 * out.size(), kPiece));
            if (grows) grows(larger);
            out.resize(larger);
        }
        std::array<std::byte, 1> beyond{};  // shows whether there are more bytes than allowed
        const bool is_full = done == most;
        const Step step = decoder.step(bytes.subspan(read), is_full ? std::span(beyond) : std::span(out).subspan(done));
        if (is_full && step.made > 0) too_long(coding);
        read += step.read;
        done += step.made;
        if (step.ended && read == bytes.size()) {
            out.resize(done);
            return out;
        }
        if (step.ended) decoder.next_member();
        if (step.read == 0 && step.made == 0) reject(coding, "it is cut off");
    }
}

void check_level(int level) {
    if (level < 1 || level > 9)
        throw std::invalid_argument("the compression level is " + std::to_string(level) +
                                    ": use 1 (fast) to 9 (small)");
}

}  // namespace

std::string_view name_of(Coding coding) {
    switch (coding) {
        case Coding::zstd: return "zstd";
        case Coding::gzip: return "gzip";
        case Coding::none: break;
    }
    return "identity";
}

std::optional<Coding> parse_coding(std::string_view name) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (lower == "x-gzip") return Coding::gzip;
    for (const Coding coding : {Coding::none, Coding::zstd, Coding::gzip}) {
        if (lower == name_of(coding)) return coding;
    }
    return std::nullopt;
}

Compression parse_compression(std::string_view name, int level) {
    check_level(level);
    if (name == "none") return {};
    if (name != name_of(Coding::zstd))
        throw std::invalid_argument("compression \"" + std::string(name) + "\": use zstd or none");
    return {Coding::zstd, level};
}

bool accepts(std::string_view list, Coding coding) {
    bool found = false;
    for_each_in(list, [&](std::string_view element) {
        found |= parse_coding(without_parameters(element)) == coding && !is_rejected(element);
    });
    return found;
}

CodingOffer CodingOffer::parse(std::string_view list, int level) {
    check_level(level);
    CodingOffer offer;
    offer.level = level;
    if (trim(list) == "none") return offer;
    for_each_in(list, [&](std::string_view name) {
        const auto coding = parse_coding(name);
        if (!coding || *coding == Coding::none)
            throw std::invalid_argument("compression \"" + std::string(list) + "\": use zstd, gzip, both, or none");
        offer.codings.push_back(*coding);
    });
    return offer;
}

Compression CodingOffer::choose(std::string_view accepted) const {
    for (const Coding coding : codings) {
        if (accepts(accepted, coding)) return {coding, level};
    }
    return {};
}

Compression CodingOffer::for_tensors() const { return choose(name_of(Coding::zstd)); }

bool is_worth_compressing(std::span<const std::byte> first, Compression how) {
    if (!how || first.size() < kWorthwhile) return false;
    const auto probe = first.first(std::min(first.size(), kProbe));
    thread_local std::vector<std::byte> scratch(kProbe);
    const auto size = compress_into(probe, how, std::span(scratch).first(probe.size()));
    return size && is_smaller(*size, probe.size());
}

std::optional<CompressedBytes> compress_if_smaller(std::span<const std::byte> bytes, Compression how) {
    if (!how || bytes.size() < kWorthwhile) return std::nullopt;
    if (bytes.size() > kProbe && !is_worth_compressing(bytes, how)) return std::nullopt;
    const std::size_t room = bytes.size() - bytes.size() / 10;
    std::shared_ptr<std::byte[]> out(new std::byte[room]);
    const auto size = compress_into(bytes, how, {out.get(), room});
    if (!size) return std::nullopt;
    return CompressedBytes{std::move(out), *size};
}

void decompress_zstd(std::span<const std::byte> bytes, std::span<std::byte> out) {
    // In one step, so that zstd keeps no window.
    const std::size_t size = ZSTD_decompressDCtx(zstd_decoder(), out.data(), out.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(size) == 0 && size == out.size()) return;
    if (ZSTD_isError(size) == 0) reject(Coding::zstd, "there are fewer bytes than there should be");
    if (ZSTD_getErrorCode(size) == ZSTD_error_dstSize_tooSmall) too_long(Coding::zstd);
    reject(Coding::zstd, kDamaged);
}

std::vector<std::byte> decompress(Coding coding, std::span<const std::byte> bytes, std::size_t most,
                                  const std::function<void(std::size_t)>& grows) {
    if (coding == Coding::zstd) {
        Unzstd decoder;
        return decompress_all(coding, decoder, bytes, most, grows);
    }
    Gzip decoder;
    return decompress_all(coding, decoder, bytes, most, grows);
}

std::optional<std::uint64_t> size_before_zstd(std::span<const std::byte> bytes) {
    const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
    return size;
}

class Compressor::Impl {
public:
    Impl(Compression how, std::uint64_t size) : out_(kPiece) {
        if (how.coding == Coding::gzip) {
            gzip_ = std::make_unique<Gzip>(how.level);
            return;
        }
        zstd_.reset(ZSTD_createCCtx());
        if (!zstd_) throw std::bad_alloc();
        ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_compressionLevel, how.level);
        ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_checksumFlag, 1);
        ZSTD_CCtx_setPledgedSrcSize(zstd_.get(), size);
    }

    bool add(std::span<const std::byte> bytes, bool is_last, const Take& take) {
        std::size_t read = 0;
        while (true) {
            const auto rest = bytes.subspan(read);
            const Step step = gzip_ != nullptr ? gzip_->step(rest, out_, is_last) : zstd_step(rest, is_last);
            read += step.read;
            if (step.made > 0 && !take(std::span(out_).first(step.made))) return false;
            if (is_last ? step.ended : read == bytes.size() && step.made < out_.size()) return true;
        }
    }

private:
    Step zstd_step(std::span<const std::byte> bytes, bool is_last) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        ZSTD_outBuffer out{out_.data(), out_.size(), 0};
        const std::size_t rest = ZSTD_compressStream2(zstd_.get(), &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(rest) != 0) throw std::bad_alloc();
        return {in.pos, out.pos, is_last && rest == 0};
    }

    std::unique_ptr<Gzip> gzip_;
    std::unique_ptr<ZSTD_CCtx, FreeZstd> zstd_;
    std::vector<std::byte> out_;
};

Compressor::Compressor(Compression how, std::uint64_t size) : impl_(std::make_unique<Impl>(how, size)) {}
Compressor::Compressor(Compressor&&) noexcept = default;
Compressor::~Compressor() = default;
bool Compressor::add(std::span<const std::byte> bytes, bool is_last, const Take& take) {
    return impl_->add(bytes, is_last, take);
}

}  // namespace shared_tensor
