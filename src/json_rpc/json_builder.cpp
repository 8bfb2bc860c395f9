#include "json_rpc/json_builder.hpp"

#include <string_view>
#include <utility>

namespace shared_tensor::json_rpc {
namespace {

constexpr std::size_t kLongestQuotedKey = 64;
constexpr int kNumberOutOfRange = 406;  // nlohmann's id for a number beyond double

// The library's message quotes the bytes it read last, which may be anything and of any length: keep what is before.
std::string reason_of(std::string_view what) {
    constexpr std::string_view kStart = "syntax error ";
    const auto start = what.find(kStart);
    if (start == std::string_view::npos) return "not JSON";
    what.remove_prefix(start + kStart.size());
    return std::string(what.substr(0, what.find("; last read")));
}

}  // namespace

bool JsonBuilder::number_float(Json::number_float_t value, const std::string& literal) {
    // An integer arrives here only when 64 bits can't hold it.
    if (literal.find_first_not_of("-0123456789") == std::string::npos) {
        return refuse(JsonFault::number_range, "an integer does not fit in 64 bits; send it as a string");
    }
    return put(value);
}

bool JsonBuilder::start_object(std::size_t) { return open(Json::value_t::object); }

bool JsonBuilder::start_array(std::size_t) { return open(Json::value_t::array); }

bool JsonBuilder::key(std::string& key) {
    auto& members = *open_.back()->get_ptr<Json::object_t*>();
    const auto [member, added] = members.try_emplace(std::move(key));  // leaves the key alone when it is there already
    if (!added) {
        return refuse(JsonFault::duplicate_key, key.size() <= kLongestQuotedKey
                                                    ? "an object has the key \"" + key + "\" twice"
                                                    : "an object has a key twice");
    }
    member_ = &member->second;
    return true;
}

bool JsonBuilder::parse_error(std::size_t offset, const std::string&, const Json::exception& cause) {
    const auto where = "byte " + std::to_string(offset) + ": ";
    if (cause.id == kNumberOutOfRange) {
        return refuse(JsonFault::number_range, where + "a number does not fit in a double");
    }
    return refuse(JsonFault::syntax, where + reason_of(cause.what()));
}

Json& JsonBuilder::place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return *member_ = std::move(value);
    return parent.get_ptr<Json::array_t*>()->emplace_back(std::move(value));
}

bool JsonBuilder::open(Json::value_t type) {
    if (open_.size() == max_depth_) {
        return refuse(JsonFault::too_deep, "nested deeper than " + std::to_string(max_depth_) + " levels");
    }
    // The pointer stays good: a container's own elements only move after the containers inside them are closed.
    open_.push_back(&place(Json(type)));
    return true;
}

bool JsonBuilder::close() {
    open_.pop_back();
    return true;
}

bool JsonBuilder::refuse(JsonFault fault, std::string detail) {
    error_ = JsonTextError{fault, std::move(detail)};
    return false;
}

}  // namespace shared_tensor::json_rpc
