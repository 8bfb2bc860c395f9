#include "base/bytes/compression.hpp"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

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

std::string_view trim(std::string_view text) {
    while (text.starts_with(' ') || text.starts_with('\t'))
        text.remove_prefix(1);
    while (text.ends_with(' ') || text.ends_with('\t'))
        text.remove_suffix(1);
    return text;
}

/// Calls `use` with each element of a comma-separated list.
template <class Use>
void for_each_in(std::string_view list, Use use) {
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        if (const auto one = trim(list.substr(0, comma)); !one.empty()) use(one);
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
}

/// "zstd;q=0" rejects a coding (RFC 9110, section 12.4.2).
bool is_rejected(std::string_view element) {
    const std::size_t weight = element.find("q=");
    return weight != std::string_view::npos && element.find_first_of("123456789", weight) == std::string_view::npos;
}

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

class Deflate {
public:
    explicit Deflate(int level) {
        if (::deflateInit2(&stream_, level, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY) != Z_OK)
            throw std::bad_alloc();
    }
    Deflate(const Deflate&) = delete;
    Deflate& operator=(const Deflate&) = delete;
    ~Deflate() { ::deflateEnd(&stream_); }
    z_stream* operator->() { return &stream_; }
    z_stream* get() { return &stream_; }

private:
    z_stream stream_{};
};

class Inflate {
public:
    Inflate() {
        if (::inflateInit2(&stream_, kGzipFormat) != Z_OK) throw std::bad_alloc();
    }
    Inflate(const Inflate&) = delete;
    Inflate& operator=(const Inflate&) = delete;
    ~Inflate() { ::inflateEnd(&stream_); }
    z_stream* operator->() { return &stream_; }
    z_stream* get() { return &stream_; }

private:
    z_stream stream_{};
};

Bytef* input_of(std::span<const std::byte> bytes) {
    return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));  // zlib only reads it
}

/// Returns the compressed size, or nullopt when `out` is too small.
std::optional<std::size_t> compress_zstd(std::span<const std::byte> bytes, int level, std::span<std::byte> out) {
    ZSTD_CCtx* context = zstd_encoder();
    const std::size_t size = ZSTD_compressCCtx(context, out.data(), out.size(), bytes.data(), bytes.size(), level);
    if (ZSTD_isError(size) != 0) return std::nullopt;
    return size;
}

std::optional<std::size_t> compress_gzip(std::span<const std::byte> bytes, int level, std::span<std::byte> out) {
    Deflate deflate(level);
    std::size_t done = 0, read = 0;
    while (true) {
        const uInt in = piece_of(bytes.size() - read), room = piece_of(out.size() - done);
        deflate->next_in = input_of(bytes.subspan(read));
        deflate->avail_in = in;
        deflate->next_out = reinterpret_cast<Bytef*>(out.data() + done);
        deflate->avail_out = room;
        const bool is_last = read + in == bytes.size();
        const int result = ::deflate(deflate.get(), is_last ? Z_FINISH : Z_NO_FLUSH);
        read += in - deflate->avail_in;
        done += room - deflate->avail_out;
        if (result == Z_STREAM_END) return done;
        if (result != Z_OK || done == out.size()) return std::nullopt;
    }
}

std::optional<std::size_t> compress_into(std::span<const std::byte> bytes, Compression how, std::span<std::byte> out) {
    return how.coding == Coding::zstd ? compress_zstd(bytes, how.level, out) : compress_gzip(bytes, how.level, out);
}

[[noreturn]] void reject(Coding coding, const char* why) {
    throw BadCompression(std::string(name_of(coding)).append(": ").append(why));
}

constexpr const char* kDamaged = "the bytes are not compressed so, or damaged";
[[noreturn]] void too_long(Coding coding) {
    throw TooLong(std::string(name_of(coding)).append(": there are more bytes than there should be"));
}

/// Calls `room(needed)` for memory that is to be filled, and `filled(n)`, until the input ends.
template <class Room, class Filled>
void inflate_all(std::span<const std::byte> bytes, Room room, Filled filled) {
    Inflate inflate;
    std::size_t read = 0;
    while (true) {
        const std::span<std::byte> out = room();
        const uInt in = piece_of(bytes.size() - read), size = piece_of(out.size());
        std::array<Bytef, 1> beyond{};
        inflate->next_in = input_of(bytes.subspan(read));
        inflate->avail_in = in;
        inflate->next_out = out.empty() ? beyond.data() : reinterpret_cast<Bytef*>(out.data());
        inflate->avail_out = out.empty() ? 1 : size;
        const int result = ::inflate(inflate.get(), Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) throw std::bad_alloc();
        read += in - inflate->avail_in;
        if (out.empty() && inflate->avail_out == 0) too_long(Coding::gzip);
        if (!out.empty()) filled(size - inflate->avail_out);
        if (result == Z_STREAM_END) {
            if (read != bytes.size()) reject(Coding::gzip, "something follows its end");
            return;
        }
        if (result != Z_OK && result != Z_BUF_ERROR) reject(Coding::gzip, kDamaged);
        if (result == Z_BUF_ERROR && read == bytes.size()) reject(Coding::gzip, "it is cut off");
    }
}

template <class Room, class Filled>
void unzstd_all(std::span<const std::byte> bytes, Room room, Filled filled) {
    ZSTD_DCtx* context = zstd_decoder();
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (true) {
        const std::span<std::byte> space = room();
        std::array<std::byte, 1> beyond{};
        ZSTD_outBuffer out{space.empty() ? beyond.data() : space.data(), space.empty() ? 1 : space.size(), 0};
        const std::size_t before = in.pos;
        const std::size_t rest = ZSTD_decompressStream(context, &out, &in);
        if (ZSTD_isError(rest) != 0) reject(Coding::zstd, kDamaged);
        if (space.empty() && out.pos > 0) too_long(Coding::zstd);
        if (!space.empty()) filled(out.pos);
        if (rest == 0) {
            if (in.pos != in.size) reject(Coding::zstd, "something follows its end");
            return;
        }
        if (in.pos == in.size && in.pos == before && out.pos == 0) reject(Coding::zstd, "it is cut off");
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
        found |= parse_coding(trim(element.substr(0, element.find(';')))) == coding && !is_rejected(element);
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
    std::vector<std::byte> out;
    std::size_t done = 0;
    const auto room = [&] {
        if (done == out.size() && done < most) {
            const std::size_t larger = std::min(most, std::max(2 * out.size(), kPiece));
            if (grows) grows(larger);
            out.resize(larger);
        }
        return std::span(out).subspan(done);
    };
    const auto filled = [&](std::size_t more) { done += more; };
    if (coding == Coding::zstd) {
        unzstd_all(bytes, room, filled);
    } else {
        inflate_all(bytes, room, filled);
    }
    out.resize(done);
    return out;
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
            deflate_ = std::make_unique<Deflate>(how.level);
            return;
        }
        zstd_.reset(ZSTD_createCCtx());
        if (!zstd_) throw std::bad_alloc();
        ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_compressionLevel, how.level);
        ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_checksumFlag, 1);
        ZSTD_CCtx_setPledgedSrcSize(zstd_.get(), size);
    }

    bool add(std::span<const std::byte> bytes, bool is_last, const Take& take) {
        return deflate_ != nullptr ? deflate(bytes, is_last, take) : zstd(bytes, is_last, take);
    }

private:
    bool deflate(std::span<const std::byte> bytes, bool is_last, const Take& take) {
        std::size_t read = 0;
        while (true) {
            const uInt in = piece_of(bytes.size() - read);
            (*deflate_)->next_in = input_of(bytes.subspan(read));
            (*deflate_)->avail_in = in;
            (*deflate_)->next_out = reinterpret_cast<Bytef*>(out_.data());
            (*deflate_)->avail_out = static_cast<uInt>(out_.size());
            const bool finish = is_last && read + in == bytes.size();
            const int result = ::deflate(deflate_->get(), finish ? Z_FINISH : Z_NO_FLUSH);
            read += in - (*deflate_)->avail_in;
            const std::size_t made = out_.size() - (*deflate_)->avail_out;
            if (made > 0 && !take(std::span(out_).first(made))) return false;
            if (result == Z_STREAM_END) return true;
            if (!is_last && read == bytes.size() && made < out_.size()) return true;
        }
    }
    bool zstd(std::span<const std::byte> bytes, bool is_last, const Take& take) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        while (true) {
            ZSTD_outBuffer out{out_.data(), out_.size(), 0};
            const std::size_t rest =
                ZSTD_compressStream2(zstd_.get(), &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
            if (ZSTD_isError(rest) != 0) throw std::bad_alloc();
            if (out.pos > 0 && !take(std::span(out_).first(out.pos))) return false;
            if (is_last ? rest == 0 : in.pos == in.size) return true;
        }
    }

    std::unique_ptr<Deflate> deflate_;
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
