#include "base/bytes/digest.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string_view>
#include <vector>

#include <shared_tensor/bytes.hpp>

#include "base/bytes/digest_kernel.hpp"
#include "base/bytes/ids.hpp"

namespace shared_tensor {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_CASE("a digest is XXH3's of 128 bits, big endian; SHA-256 is that of FIPS 180-2", "[util]") {
    // As another implementation (the Python package xxhash) has them.
    CHECK(encode_base64(Digest::of({})) == "maoG0wFHmNhgAcMkRo1Jfw==");
    CHECK(encode_base64(Digest::of(bytes("abc"))) == "BrBatnM6YYV4r1+UiS85UA==");
    CHECK(hex(sha256_of(bytes("abc"))) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("a digest is the same in whatever pieces the bytes come", "[util]") {
    std::vector<std::byte> all(100'000);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::byte>(i * 7919 >> 3);
    const auto whole = Digest::of(all);
    for (const std::size_t piece : {1UL, 63UL, 4096UL, 99'999UL}) {
        Digest digest;
        for (std::size_t at = 0; at < all.size(); at += piece)
            digest.update(std::span(all).subspan(at, std::min(piece, all.size() - at)));
        CHECK(digest.value() == whole);
    }
    all[50'000] ^= std::byte{1};
    CHECK(Digest::of(all) != whole);
}

TEST_CASE("a digest is the same on every processor", "[util]") {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) SKIP("this processor has no AVX2: there is one way only");
#endif
    std::vector<std::byte> all(300'000);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::byte>(i * 2654435761U >> 9);
    for (const std::size_t size : {0UL, 1UL, 16UL, 17UL, 128UL, 129UL, 240UL, 241UL, 1024UL, 65'537UL, 300'000UL}) {
        std::array<unsigned char, 16> plain{}, wide{};
        kKernel.of(all.data(), size, plain.data());
        kWideDigest.of(all.data(), size, wide.data());
        CHECK(plain == wide);
    }
}

}  // namespace
}  // namespace shared_tensor
