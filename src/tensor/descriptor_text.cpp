#include "tensor/descriptor_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

namespace shared_tensor::tensor {

namespace {

bool is_plain(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '-' || byte == '_' || byte == '.';
}

/// Takes one piece after the other; false where something else comes.
class Scanner {
public:
    explicit Scanner(std::string_view rest) : rest_(rest) {}

    bool take(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }

    /// What stands before the next quote, if it needs no escape.
    bool word(std::string_view& word) {
        const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_plain);
        word = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
        rest_.remove_prefix(word.size());
        return !word.empty() && take("\"");
    }

    bool natural(std::int64_t& value) {
        if (rest_.empty() || rest_[0] < '0' || rest_[0] > '9') return false;
        if (rest_[0] == '0' && rest_.size() > 1 && rest_[1] >= '0' && rest_[1] <= '9') return false;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (error != std::errc()) return false;
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        return true;
    }

    bool counts(Shape& counts) {
        if (take("[]")) return true;
        char before = '[';
        while (take(std::string_view(&before, 1))) {
            if (counts.size() == kMaxRank || !natural(counts.emplace_back())) return false;
            before = ',';
        }
        return !counts.empty() && take("]");
    }

    bool at_end() const { return rest_.empty(); }

private:
    std::string_view rest_;
};

bool scan(Scanner& text, Descriptor& descriptor) {
    std::string_view dtype, lease, segment;
    std::int64_t offset = 0, size = 0;
    if (!text.take(R"({"device":"cpu","dtype":")") || !text.word(dtype)) return false;
    if (!text.take(R"(,"lease":")") || !text.word(lease)) return false;
    if (!text.take(R"(,"shape":)") || !text.counts(descriptor.shape)) return false;
    if (text.take(R"(,"strides":)") && !text.counts(descriptor.strides)) return false;
    if (!text.take(R"(,"shm":{"segment":")") || !text.word(segment)) return false;
    if (!text.take(R"(,"offset":)") || !text.natural(offset)) return false;
    if (!text.take(R"(,"size":)") || !text.natural(size) || !text.take("}}") || !text.at_end()) return false;
    const auto known = parse_dtype(dtype);
    if (!known) return false;
    descriptor.dtype = *known;
    descriptor.lease = lease;
    descriptor.place = {std::string(segment), {static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(size)}};
    return true;
}

/// As parse_descriptor does; false where it would throw.
bool measure(Descriptor& descriptor, const DescriptorLimits& limits) {
    const std::size_t item = size_of(descriptor.dtype);
    if (!descriptor.strides.empty()) {
        if (descriptor.strides.size() != descriptor.shape.size()) return false;
        if (!extent_of(descriptor.shape, {}, item)) return false;
        if (!extent_of(descriptor.shape, descriptor.strides, item)) return false;
        if (is_contiguous(descriptor.shape, descriptor.strides)) descriptor.strides.clear();
    }
    const auto extent = extent_of(descriptor.shape, descriptor.strides, item);
    if (!extent || extent->elements == 0) return false;
    descriptor.extent = *extent;
    return extent->bytes <= extent->reach || extent->bytes <= limits.max_expanded_bytes;
}

}  // namespace

std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits) {
    Scanner scanner(text);
    Descriptor descriptor;
    descriptor.way = Way::shm;
    if (!scan(scanner, descriptor) || !measure(descriptor, limits)) return std::nullopt;
    return descriptor;
}

}  // namespace shared_tensor::tensor
