#include "base/bytes/compression.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>

namespace shared_tensor::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes smooth(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(i / 1000);
    return bytes;
}

Bytes noise(std::size_t size) {
    std::mt19937 random(1);
    Bytes bytes(size);
    for (std::byte& one : bytes)
        one = static_cast<std::byte>(random());
    return bytes;
}

constexpr Coding kCodings[] = {Coding::zstd, Coding::gzip};

/// Both ways to decompress, into memory that was not there before and into memory of the right size.
Bytes decompressed(Coding coding, std::span<const std::byte> bytes, std::size_t size, bool into_place = false) {
    if (!into_place) return decompress(coding, bytes, size);
    Bytes out(size);
    decompress_zstd(bytes, out);
    return out;
}

}  // namespace

TEST_CASE("what was compressed comes back byte for byte, at any level and size", "[compression]") {
    for (const Coding coding : kCodings) {
        for (const int level : {1, 5, 9}) {
            for (const std::size_t size : {1'024, 65'535, 65'536, 65'537, 5'000'000}) {
                const Bytes plain = smooth(size);
                const auto compressed = compress_if_smaller(plain, {coding, level});
                REQUIRE(compressed);
                CHECK(compressed->size < size);
                CHECK((decompressed(coding, compressed->bytes(), size) == plain));
                if (coding == Coding::zstd) CHECK((decompressed(coding, compressed->bytes(), size, true) == plain));
            }
        }
    }
}

TEST_CASE("what would not shrink, or is small, is not compressed", "[compression]") {
    for (const Coding coding : kCodings) {
        CHECK_FALSE(compress_if_smaller(noise(1'000'000), {coding, 1}));
        CHECK_FALSE(compress_if_smaller(noise(10'000), {coding, 1}));
        CHECK_FALSE(compress_if_smaller(smooth(1'000), {coding, 1}));
        Bytes misleading = smooth(64 << 10);  // the probe is not all
        const Bytes rest = noise(2'000'000);
        misleading.insert(misleading.end(), rest.begin(), rest.end());
        CHECK_FALSE(compress_if_smaller(misleading, {coding, 1}));
    }
    CHECK_FALSE(compress_if_smaller(smooth(1'000'000), {}));
    CHECK_FALSE(size_before_zstd(smooth(1'000)));
}

TEST_CASE("several members, one after the other, are one content", "[compression]") {
    for (const Coding coding : kCodings) {
        const Bytes plain = smooth(100'000);
        const auto one = compress_if_smaller(plain, {coding, 1});
        REQUIRE(one);
        Bytes members, whole;
        for (int i = 0; i < 3; ++i) {
            members.insert(members.end(), one->bytes().begin(), one->bytes().end());
            whole.insert(whole.end(), plain.begin(), plain.end());
        }
        CHECK((decompress(coding, members, whole.size()) == whole));
        CHECK_THROWS_AS(decompress(coding, members, whole.size() - 1), TooLong);
        CHECK_THROWS_AS(decompress(coding, std::span(members).first(members.size() - 1), whole.size()), BadCompression);
        for (const std::size_t more : {1, 3, 100}) {  // no member
            Bytes longer = members;
            longer.resize(members.size() + more, std::byte{'x'});
            CHECK_THROWS_AS(decompress(coding, longer, whole.size()), BadCompression);
            longer.resize(members.size());
            longer.resize(members.size() + more, std::byte{0});
            CHECK_THROWS_AS(decompress(coding, longer, whole.size()), BadCompression);
        }
    }
}

TEST_CASE("what is compressed piece by piece is one whole", "[compression]") {
    for (const Coding coding : kCodings) {
        const Bytes plain = smooth(3'000'000);
        Compressor compressor({coding, 1}, plain.size());
        Bytes all;
        const auto take = [&](std::span<const std::byte> piece) {
            all.insert(all.end(), piece.begin(), piece.end());
            return true;
        };
        for (std::size_t at = 0; at < plain.size(); at += 700'001) {
            const std::size_t size = std::min<std::size_t>(700'001, plain.size() - at);
            REQUIRE(compressor.add(std::span(plain).subspan(at, size), at + size == plain.size(), take));
        }
        CHECK((decompress(coding, all, plain.size()) == plain));
        if (coding == Coding::zstd) CHECK(size_before_zstd(all) == plain.size());
        for (std::size_t at = 0; at < all.size(); at += 1 + all.size() / 100) {
            Bytes damaged = all;
            damaged[at] ^= std::byte{1};
            bool is_harmless = true;  // some bits tell nothing: then the bytes are right
            try {
                is_harmless = decompress(coding, damaged, plain.size()) == plain;
            } catch (const BadCompression&) {
            }
            CHECK(is_harmless);
        }
        Compressor stopped({coding, 1}, plain.size());
        CHECK_FALSE(stopped.add(plain, true, [](std::span<const std::byte>) { return false; }));
    }
}

TEST_CASE("of the codings that a reader accepts the offer's first is chosen", "[compression]") {
    const CodingOffer offer = CodingOffer::parse("zstd, gzip", 3);
    CHECK(offer.choose("gzip, zstd").coding == Coding::zstd);
    CHECK(offer.choose("gzip, zstd").level == 3);
    CHECK(offer.choose("br, GZIP;q=0.5").coding == Coding::gzip);
    CHECK(offer.choose("x-gzip").coding == Coding::gzip);
    CHECK_FALSE(offer.choose("br, zstd;q=0, gzip; q=0.000"));
    CHECK_FALSE(offer.choose("zstd;x=1;Q=0, gzip;q=0;x=1"));
    CHECK(offer.choose("gzip;xq=0").coding == Coding::gzip);  // another parameter than the weight
    CHECK(offer.choose("gzip;q=0.5;xq=0").coding == Coding::gzip);
    CHECK_FALSE(offer.choose(""));
    CHECK_FALSE(CodingOffer::parse("none", 1).choose("zstd"));
    CHECK(offer.for_tensors().coding == Coding::zstd);
    CHECK_FALSE(CodingOffer::parse("gzip", 1).for_tensors());
    for (const char* wrong : {"lzma", "zstd, none", "identity"})
        CHECK_THROWS_AS(CodingOffer::parse(wrong, 1), std::invalid_argument);
    CHECK_THROWS_AS(CodingOffer::parse("zstd", 0), std::invalid_argument);
}

}  // namespace shared_tensor::test
