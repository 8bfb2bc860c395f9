#include "net/message/digest_field.hpp"

#include <algorithm>

#include <shared_tensor/bytes.hpp>

#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::string_view kAlgorithm = "xxh3-128";

/// The text after "xxh3-128=" in a list of members with commas between them.
std::optional<std::string_view> member_of(std::string_view field) {
    while (!field.empty()) {
        const std::string_view all = field.substr(0, field.find(','));
        field.remove_prefix(std::min(field.size(), all.size() + 1));
        const std::string_view one = trim(all);
        const std::size_t equals = one.find('=');
        if (equals != std::string_view::npos && one.substr(0, equals) == kAlgorithm) return one.substr(equals + 1);
    }
    return std::nullopt;
}

}  // namespace

bool wants_digest(std::optional<std::string_view> field) {
    const auto weight = field ? member_of(*field) : std::nullopt;
    return weight && weight->size() == 1 && weight->front() >= '1' && weight->front() <= '9';
}

std::string digest_field(const Digest::Value& value) {
    return std::string(kAlgorithm) + "=:" + encode_base64(value) + ":";
}

DigestField parse_digest_field(std::optional<std::string_view> field) {
    const auto member = field ? member_of(*field) : std::nullopt;
    if (!member) return {};
    DigestField found{true};
    if (member->size() < 2 || !member->starts_with(':') || !member->ends_with(':')) return found;
    const std::string_view text = member->substr(1, member->size() - 2);
    Digest::Value value;
    if (decoded_base64_size(text) == value.size() && decode_base64_into(text, value.data())) found.value = value;
    return found;
}

}  // namespace shared_tensor::net
