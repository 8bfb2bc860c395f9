#include "net/message/fields.hpp"

#include <algorithm>
#include <limits>

#include <shared_tensor/bytes.hpp>

#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::string_view kUnit = "bytes=";
constexpr std::string_view kAlgorithm = "xxh3-128";

/// The text after "xxh3-128=" in a list of members with commas between them.
std::optional<std::string_view> member_of(std::string_view field) {
    std::optional<std::string_view> found;
    for_each_in(field, [&](std::string_view one) {
        const std::size_t equals = one.find('=');
        const bool is_it = equals != std::string_view::npos && one.substr(0, equals) == kAlgorithm;
        if (is_it && !found) found = one.substr(equals + 1);
    });
    return found;
}

}  // namespace

RangeRequest parse_range(std::optional<std::string_view> field, std::uint64_t size) {
    if (!field || field->size() < kUnit.size() || !same_token(field->substr(0, kUnit.size() - 1), "bytes") ||
        (*field)[kUnit.size() - 1] != '=')
        return {};
    const std::string_view range = trim(field->substr(kUnit.size()));
    const std::size_t dash = range.find('-');
    if (dash == std::string_view::npos || range.find(',') != std::string_view::npos) return {};
    const std::string_view from = range.substr(0, dash), to = range.substr(dash + 1);
    if (from.empty()) {  // "-100": the last 100 bytes
        const auto count = parse_decimal(to);
        if (!count) return {};
        if (*count == 0 || size == 0) return {RangeRequest::Kind::not_there};
        const std::uint64_t taken = std::min(*count, size);
        return {RangeRequest::Kind::part, {size - taken, taken}};
    }
    const auto first = parse_decimal(from);
    const auto last = to.empty() ? std::optional(size) : parse_decimal(to);
    if (!first || !last || (!to.empty() && *last < *first)) return {};
    if (*first >= size) return {RangeRequest::Kind::not_there};
    return {RangeRequest::Kind::part, {*first, std::min(*last, size - 1) - *first + 1}};
}

std::string content_range(const ByteRange& part, std::uint64_t size) {
    return "bytes " + std::to_string(part.first) + "-" + std::to_string(part.first + part.count - 1) + "/" +
           std::to_string(size);
}

std::string content_range_of_none(std::uint64_t size) { return "bytes */" + std::to_string(size); }

std::optional<ContentRange> parse_content_range(std::string_view field) {
    field = trim(field);
    if (field.size() < 6 || !same_token(field.substr(0, 5), "bytes") || field[5] != ' ') return std::nullopt;
    const std::string_view range = trim(field.substr(6));
    const std::size_t slash = range.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string_view part = range.substr(0, slash), whole = range.substr(slash + 1);
    ContentRange found;
    if (whole != "*") {
        found.size = parse_decimal(whole);
        if (!found.size) return std::nullopt;
    }
    if (part == "*") return found.size ? std::optional(found) : std::nullopt;
    const std::size_t dash = part.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = parse_decimal(part.substr(0, dash)), last = parse_decimal(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last == std::numeric_limits<std::uint64_t>::max() ||
        (found.size && *last >= *found.size))
        return std::nullopt;
    found.part = {*first, *last - *first + 1};
    return found;
}

bool names_etag(std::string_view field, std::string_view etag, bool weakly) {
    field = trim(field);
    if (field == "*") return true;
    while (!field.empty()) {
        const bool is_weak = field.starts_with("W/");
        if (is_weak) field.remove_prefix(2);
        if (!field.starts_with('"')) return false;
        const std::size_t end = field.find('"', 1);
        if (end == std::string_view::npos) return false;
        if (field.substr(0, end + 1) == etag && (weakly || !is_weak)) return true;
        field = trim(field.substr(end + 1));
        if (!field.empty() && !field.starts_with(',')) return false;
        if (!field.empty()) field = trim(field.substr(1));
    }
    return false;
}

std::string_view first_accepted(const Headers& headers, std::initializer_list<std::string_view> types) {
    std::string_view accepted;
    for (const auto& [name, value] : headers) {
        if (!same_token(name, "Accept")) continue;
        for_each_in(value, [&](std::string_view element) {
            for (const std::string_view type : types) {
                const bool names_it = same_token(without_parameters(element), type) && !is_rejected(element);
                if (names_it && accepted.empty()) accepted = type;
            }
        });
    }
    return accepted;
}

std::vector<BodyPart> cut(const std::vector<BodyPart>& parts, const ByteRange& part) {
    std::vector<BodyPart> result;
    std::uint64_t skip = part.first, wanted = part.count;
    for (const BodyPart& one : parts) {
        if (wanted == 0) break;
        if (skip >= one.size()) {
            skip -= one.size();
            continue;
        }
        const std::uint64_t count = std::min(wanted, one.size() - skip);
        result.push_back(one.part(skip, count));
        skip = 0;
        wanted -= count;
    }
    return result;
}

bool is_request_id(std::string_view text) {
    return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
        return c > 0x20 && c < 0x7f && c != '"' && c != '\'' && c != '\\';
    });
}

bool is_traceparent(std::string_view text) {
    constexpr std::string_view kForm = "00-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    if (text.size() != kForm.size()) return false;
    for (std::size_t i = 0; i < kForm.size(); ++i) {
        const char c = text[i];
        const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (kForm[i] == 'x' ? !is_hex : c != kForm[i]) return false;
    }
    const auto has_digit = [&](std::size_t from, std::size_t size) {
        return text.substr(from, size).find_first_not_of('0') != std::string_view::npos;
    };
    return has_digit(3, 32) && has_digit(36, 16);
}

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
