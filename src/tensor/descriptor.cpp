#include "tensor/descriptor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <shared_tensor/value.hpp>

#include "tensor/element.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr std::array<std::string_view, kTransportKinds.size()> kTransportNames{"data", "base64",   "body",
                                                                               "shm",  "cuda_ipc", "url"};
constexpr std::array<std::string_view, 5> kPlainMembers{"dtype", "shape", "strides", "device", "lease"};

[[noreturn]] void fail(std::string path, std::string expected, const Json* got) {
    throw InvalidValue(std::move(path), std::move(expected), got != nullptr ? described(*got) : "nothing");
}

const Json* find(const Json& json, std::string_view key) {
    const auto found = json.find(key);
    return found == json.end() ? nullptr : &*found;
}

std::optional<std::uint64_t> natural(const Json& json) {
    if (json.is_number_unsigned()) return json.get<std::uint64_t>();
    if (!json.is_number_integer() || json.get<std::int64_t>() < 0) return std::nullopt;
    return static_cast<std::uint64_t>(json.get<std::int64_t>());
}

/// Returns the transport that a descriptor names. A `url` beside another transport is only a second address.
TransportKind find_transport(const Json& json) {
    std::vector<TransportKind> found;
    for (const auto& [key, member] : json.get_ref<const Json::object_t&>()) {
        if (const auto transport = parse_transport(key)) {
            found.push_back(*transport);
        } else if (std::find(kPlainMembers.begin(), kPlainMembers.end(), key) == kPlainMembers.end()) {
            throw InvalidValue(
                {},
                "a tensor's members only (dtype, shape, strides, device, lease, and one of data, base64, "
                "body, shm, cuda_ipc, url)",
                "member " + described(key));
        }
    }
    std::sort(found.begin(), found.end());
    if (found.size() == 2 && found.back() == TransportKind::url) found.pop_back();
    if (found.size() == 1) return found.front();
    throw InvalidValue({}, "exactly one of data, base64, body, shm, cuda_ipc, url",
                       found.empty() ? "none" : join(found));
}

DType read_dtype(const Json& json) {
    if (json.is_string()) {
        if (const auto dtype = parse_dtype(json.get_ref<const std::string&>())) return *dtype;
    }
    fail("dtype", "one of " + dtype_names(), &json);
}

Shape read_counts(const Json& json, std::string_view name) {
    if (!json.is_array() || json.size() > kMaxRank) {
        fail(std::string(name), "array of at most " + std::to_string(kMaxRank) + " integers", &json);
    }
    Shape counts;
    counts.reserve(json.size());
    for (const Json& element : json) {
        const auto value = natural(element);
        if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            fail(std::string(name) + '[' + std::to_string(counts.size()) + ']', "integer from 0 to 9223372036854775807",
                 &element);
        }
        counts.push_back(static_cast<std::int64_t>(*value));
    }
    return counts;
}

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_uuid(std::string_view text) {
    return !text.empty() && text.size() <= 64 &&
           std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '-'; });
}

std::string read_device(const Json& json) {
    if (json.is_string()) {
        const auto& device = json.get_ref<const std::string&>();
        if (device == "cpu" || (device.starts_with("cuda:") && is_uuid(std::string_view(device).substr(5))))
            return device;
    }
    fail("device", "\"cpu\" or \"cuda:<uuid>\"", &json);
}

void read_type_and_shape(const Json& json, Descriptor& descriptor) {
    const Json* dtype = find(json, "dtype");
    const Json* shape = find(json, "shape");
    if (descriptor.transport != TransportKind::data) {
        if (dtype == nullptr) fail("dtype", "one of " + dtype_names(), nullptr);
        if (shape == nullptr) fail("shape", "array of integers", nullptr);
    }
    const auto named = dtype != nullptr ? std::optional(read_dtype(*dtype)) : std::nullopt;
    const bool complex = named && is_complex(*named);
    descriptor.shape = shape != nullptr ? read_counts(*shape, "shape") : shape_of_data(*descriptor.content, complex);
    descriptor.dtype = named ? *named : dtype_of_data(*descriptor.content, descriptor.shape.size());
}

/// Sets strides and extent.
void set_layout(Descriptor& descriptor, std::optional<Shape> strides, const DescriptorLimits& limits) {
    const auto fail = [](const char* member, std::string expected, const Shape& got) {
        throw InvalidValue(member, std::move(expected), "array of " + std::to_string(got.size()));
    };
    const std::size_t rank = descriptor.shape.size(), item = size_of(descriptor.dtype);
    const auto dense = extent_of(descriptor.shape, {}, item);
    if (!dense) fail("shape", "sizes whose product is less than 2^63 bytes", descriptor.shape);
    descriptor.extent = *dense;
    if (!strides) return;
    if (strides->size() != rank)
        fail("strides", "array of " + std::to_string(rank) + " integers, as many as shape has", *strides);
    const auto extent = extent_of(descriptor.shape, *strides, item);
    if (!extent) fail("strides", "strides that reach less than 2^63 bytes", *strides);
    if (is_contiguous(descriptor.shape, *strides)) return;
    if (descriptor.transport == TransportKind::data || descriptor.transport == TransportKind::base64) {
        fail("strides",
             "those of a contiguous tensor, or none: " + std::string(name_of(descriptor.transport)) +
                 " holds the elements in order",
             *strides);
    }
    if (extent->bytes > extent->reach && extent->bytes > limits.max_expanded_bytes) {
        throw InvalidValue("strides",
                           "at most " + std::to_string(limits.max_expanded_bytes) + " bytes of repeated elements",
                           std::to_string(extent->bytes) + " bytes");
    }
    descriptor.strides = std::move(*strides);
    descriptor.extent = *extent;
}

/// Reads a text from left to right. `fits` becomes false when the text does not continue as expected.
struct Scanner {
    std::string_view rest;
    bool fits = true;

    bool sees(std::string_view expected) const { return rest.starts_with(expected); }
    void take(std::string_view expected) {
        fits = fits && sees(expected);
        if (fits) rest.remove_prefix(expected.size());
    }
    /// Reads the text before the next quote, if it needs no escapes.
    std::string_view word() {
        const auto end = std::find_if_not(
            rest.begin(), rest.end(), [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
        const auto word = rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
        rest.remove_prefix(word.size());
        fits = fits && !word.empty();
        return word;
    }
    std::int64_t natural() {
        std::int64_t value = -1;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        const bool leading_zero = sees("0") && value != 0;
        fits = fits && error == std::errc() && value >= 0 && !sees("-") && !leading_zero && !sees("00");
        if (fits) rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        return value;
    }
    Shape counts() {
        Shape counts;
        take("[");
        while (fits && !sees("]") && counts.size() < kMaxRank) {
            if (!counts.empty()) take(",");
            counts.push_back(natural());
        }
        take("]");
        return counts;
    }
};

}  // namespace

std::string_view name_of(TransportKind transport) { return kTransportNames[static_cast<std::size_t>(transport)]; }

std::optional<TransportKind> parse_transport(std::string_view name) {
    const auto found = std::find(kTransportNames.begin(), kTransportNames.end(), name);
    if (found == kTransportNames.end()) return std::nullopt;
    return kTransportKinds[static_cast<std::size_t>(found - kTransportNames.begin())];
}

std::string join(const std::vector<TransportKind>& transports) {
    std::string text;
    for (const TransportKind transport : transports)
        text.append(text.empty() ? "" : ", ").append(name_of(transport));
    return text;
}

Descriptor parse_descriptor(const Json& json, const DescriptorLimits& limits) {
    if (!json.is_object()) fail({}, "tensor descriptor (an object)", &json);
    Descriptor descriptor;
    descriptor.transport = find_transport(json);
    descriptor.content = find(json, name_of(descriptor.transport));
    if (const Json* device = find(json, "device")) descriptor.device = read_device(*device);
    if (const Json* lease = find(json, "lease")) {
        if (!lease->is_string()) fail("lease", "string", lease);
        descriptor.lease = lease->get<std::string>();
    }
    read_type_and_shape(json, descriptor);
    const Json* strides = find(json, "strides");
    set_layout(descriptor, strides != nullptr ? std::optional(read_counts(*strides, "strides")) : std::nullopt, limits);
    return descriptor;
}

std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits) {
    Descriptor descriptor;
    descriptor.transport = TransportKind::shm;
    std::optional<Shape> strides;
    Scanner scanner{text};
    scanner.take(R"({"device":"cpu","dtype":")");
    const auto dtype = parse_dtype(scanner.word());
    scanner.take(R"(","lease":")");
    descriptor.lease = scanner.word();
    scanner.take(R"(","shape":)");
    descriptor.shape = scanner.counts();
    constexpr std::string_view kStrides = R"(,"strides":)";
    if (scanner.sees(kStrides)) {
        scanner.take(kStrides);
        strides = scanner.counts();
    }
    scanner.take(R"(,"shm":{"segment":")");
    descriptor.place.segment = scanner.word();
    scanner.take(R"(","offset":)");
    descriptor.place.region.offset = static_cast<std::uint64_t>(scanner.natural());
    scanner.take(R"(,"size":)");
    descriptor.place.region.size = static_cast<std::uint64_t>(scanner.natural());
    scanner.take("}}");
    if (!scanner.fits || !scanner.rest.empty() || !dtype) return std::nullopt;
    descriptor.dtype = *dtype;
    try {
        set_layout(descriptor, std::move(strides), limits);
    } catch (const InvalidValue&) {
        return std::nullopt;
    }
    if (descriptor.extent.elements == 0) return std::nullopt;
    return descriptor;
}

bool is_compressed(const Descriptor& descriptor) {
    return descriptor.transport == TransportKind::body && descriptor.content->is_object() &&
           descriptor.content->contains("coding");
}

const std::string& region_text(const Descriptor& descriptor, std::string_view name) {
    const Json* member = descriptor.content->is_object() ? find(*descriptor.content, name) : nullptr;
    if (member == nullptr || !member->is_string())
        fail(std::string(name_of(descriptor.transport)).append(".").append(name), "string", member);
    return member->get_ref<const std::string&>();
}

std::uint64_t region_natural(const Descriptor& descriptor, std::string_view name) {
    const Json* member = descriptor.content->is_object() ? find(*descriptor.content, name) : nullptr;
    const auto value = member != nullptr ? natural(*member) : std::nullopt;
    if (!value) {
        const bool bytes = name == "offset" || name == "size";
        fail(std::string(name_of(descriptor.transport)).append(".").append(name),
             bytes ? "integer >= 0, in bytes" : "integer >= 0", member);
    }
    return *value;
}

std::string region_members(const Region& region) {
    return R"("offset":)" + std::to_string(region.offset) + R"(,"size":)" + std::to_string(region.size);
}

Region parse_region(const Descriptor& descriptor, std::uint64_t available,
                    std::initializer_list<std::string_view> others) {
    const Json& content = *descriptor.content;
    if (!content.is_object() || content.size() != 2 + others.size()) {
        std::string expected = "object with ";
        for (const std::string_view other : others)
            expected.append(other).append(", ");
        fail(std::string(name_of(descriptor.transport)), expected + "offset and size", &content);
    }
    const Region region{region_natural(descriptor, "offset"), region_natural(descriptor, "size")};
    check_region(descriptor, region, available);
    return region;
}

void check_region(const Descriptor& descriptor, const Region& region, std::uint64_t available) {
    const std::string name(name_of(descriptor.transport));
    const auto too_large = [&](const char* member, std::uint64_t most, std::uint64_t got) {
        throw InvalidValue(
            name + member,
            "integer up to " + std::to_string(most) + " (there are " + std::to_string(available) + " bytes)",
            "number " + std::to_string(got));
    };
    if (region.offset > available) too_large(".offset", available, region.offset);
    // Compares without offset + size, which may overflow.
    if (region.size > available - region.offset) too_large(".size", available - region.offset, region.size);
    if (is_compressed(descriptor)) return;
    const Extent& extent = descriptor.extent;
    const bool right = descriptor.strides.empty() ? region.size == extent.bytes : region.size >= extent.reach;
    if (!right) {
        throw InvalidValue(name + ".size",
                           descriptor.strides.empty()
                               ? std::to_string(extent.bytes) + " (shape x item size)"
                               : "at least " + std::to_string(extent.reach) + " (what the strides reach)",
                           std::to_string(region.size));
    }
}

void check_bools(const Descriptor& descriptor, const std::byte* data) {
    if (!has_odd_bools(descriptor.dtype, descriptor.shape, descriptor.strides, data)) return;
    throw InvalidValue(std::string(name_of(descriptor.transport)), "bytes 0 and 1 for dtype bool", "other bytes");
}

}  // namespace shared_tensor::tensor
