#include "tensor/describe.hpp"

namespace shared_tensor::tensor {

namespace {

std::string shortened(std::string text) {
    constexpr std::size_t kShown = 40;
    if (text.size() <= kShown) return text;
    std::size_t end = kShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;  // do not cut a UTF-8 character
    return text.substr(0, end) + "...";
}

}  // namespace

std::string described(const Json& json) {
    const auto text = [&] { return shortened(json.dump(-1, ' ', false, Json::error_handler_t::replace)); };
    if (json.is_array()) return "array of " + std::to_string(json.size());
    if (json.is_object()) return "object";
    if (json.is_string()) return "string " + text();
    return json.is_number() ? "number " + text() : text();
}

}  // namespace shared_tensor::tensor
