#include "util/digest.hpp"

#define XXH_INLINE_ALL  // its headers alone: nothing to link
#include <xxhash.h>

#include <new>

namespace shared_tensor {

namespace {

Digest::Value canonical(XXH128_hash_t hash) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    Digest::Value value;
    for (std::size_t i = 0; i < value.size(); ++i)
        value[i] = static_cast<std::byte>(bytes.digest[i]);
    return value;
}

}  // namespace

struct Digest::State {
    State() : xxh(XXH3_createState()) {
        if (xxh == nullptr) throw std::bad_alloc();
        XXH3_128bits_reset(xxh);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { XXH3_freeState(xxh); }
    XXH3_state_t* const xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) {}
Digest::~Digest() = default;

void Digest::update(std::span<const std::byte> bytes) { XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()); }

Digest::Value Digest::value() const { return canonical(XXH3_128bits_digest(state_->xxh)); }

Digest::Value Digest::of(std::span<const std::byte> bytes) {
    return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace shared_tensor
