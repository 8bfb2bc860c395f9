#include "tensor/descriptor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include <shared_tensor/value.hpp>

#include "tensor/transports/data_shape.hpp"
#include "tensor/transports/shm_transport.hpp"

namespace shared_tensor::tensor {

namespace {

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

bool is_uuid(std::string_view text) {
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    });
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

/// Sets descriptor.extent, and checks it. `shown`: the JSON to show in an error text; null if there is none.
void measure(Descriptor& descriptor, const DescriptorLimits& limits, const Json* shown) {
    const auto extent = extent_of(descriptor.shape, descriptor.strides, size_of(descriptor.dtype));
    if (!extent) fail("shape", "sizes whose product is less than 2^63 bytes", shown);
    descriptor.extent = *extent;
    if (extent->bytes > extent->reach && extent->bytes > limits.max_expanded_bytes) {
        throw InvalidValue("strides",
                           "at most " + std::to_string(limits.max_expanded_bytes) + " bytes of repeated elements",
                           std::to_string(extent->bytes) + " bytes");
    }
}

void set_strides(Descriptor& descriptor, Shape strides, const Json* shown) {
    if (strides.size() != descriptor.shape.size()) {
        fail("strides", "array of " + std::to_string(descriptor.shape.size()) + " integers, as many as shape has",
             shown);
    }
    if (!extent_of(descriptor.shape, strides, size_of(descriptor.dtype)))
        fail("strides", "strides that reach less than 2^63 bytes", shown);
    if (is_contiguous(descriptor.shape, strides)) return;
    if (descriptor.transport == TransportKind::data || descriptor.transport == TransportKind::base64) {
        fail("strides",
             "those of a contiguous tensor, or none: " + std::string(name_of(descriptor.transport)) +
                 " holds the elements in order",
             shown);
    }
    descriptor.strides = std::move(strides);
}

void check_size(const Descriptor& descriptor, const Region& region) {
    const Extent& extent = descriptor.extent;
    const bool right = descriptor.strides.empty() ? region.size == extent.bytes : region.size >= extent.reach;
    if (right) return;
    throw InvalidValue(std::string(name_of(descriptor.transport)) + ".size",
                       descriptor.strides.empty()
                           ? std::to_string(extent.bytes) + " (shape x item size)"
                           : "at least " + std::to_string(extent.reach) + " (what the strides reach)",
                       std::to_string(region.size));
}

bool is_plain(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '-' || byte == '_' || byte == '.';
}

/// Reads a text from left to right. Each method returns false if the text does not continue as it expects.
class Scanner {
public:
    explicit Scanner(std::string_view rest) : rest_(rest) {}

    bool take(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }

    /// Reads the text before the next quote, if it needs no escapes.
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

/// Reads the members of a descriptor's text without checking shape and strides.
bool scan(Scanner text, Descriptor& descriptor, std::optional<Shape>& strides) {
    std::string_view dtype, lease, segment;
    std::int64_t offset = 0, size = 0;
    if (!text.take(R"({"device":"cpu","dtype":")") || !text.word(dtype)) return false;
    if (!text.take(R"(,"lease":")") || !text.word(lease)) return false;
    if (!text.take(R"(,"shape":)") || !text.counts(descriptor.shape)) return false;
    if (text.take(R"(,"strides":)") && !text.counts(strides.emplace())) return false;
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

}  // namespace

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
    const Json* shape = find(json, "shape");
    measure(descriptor, limits, shape != nullptr ? shape : descriptor.content);
    if (const Json* strides = find(json, "strides")) {
        set_strides(descriptor, read_counts(*strides, "strides"), strides);
        measure(descriptor, limits, shape);
    }
    return descriptor;
}

std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits) {
    Descriptor descriptor;
    descriptor.transport = TransportKind::shm;
    std::optional<Shape> strides;
    if (!scan(Scanner(text), descriptor, strides)) return std::nullopt;
    try {
        measure(descriptor, limits, nullptr);
        if (strides) set_strides(descriptor, std::move(*strides), nullptr);
        if (!descriptor.strides.empty()) measure(descriptor, limits, nullptr);
    } catch (const InvalidValue&) {
        return std::nullopt;
    }
    if (descriptor.extent.elements == 0) return std::nullopt;
    return descriptor;
}

bool is_compressed(const Descriptor& descriptor) {
    return descriptor.content != nullptr && descriptor.content->is_object() && descriptor.content->contains("coding");
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
    const auto fail = [&](const char* member, std::uint64_t most, std::uint64_t got) {
        throw InvalidValue(
            std::string(name_of(descriptor.transport)).append(member),
            "integer up to " + std::to_string(most) + " (there are " + std::to_string(available) + " bytes)",
            described(Json(got)));
    };
    if (region.offset > available) fail(".offset", available, region.offset);
    // Compares without offset + size, which may overflow.
    if (region.size > available - region.offset) fail(".size", available - region.offset, region.size);
    check_size(descriptor, region);
}

}  // namespace shared_tensor::tensor
