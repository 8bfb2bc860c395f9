#include <array>

#include "protocol/json_rpc/utf8.hpp"
#include "runtime/tables/tensor_store.hpp"

namespace shared_tensor::runtime {

namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxMemberBytes = 1024;

std::string text_rejection(std::string_view text, std::size_t most) {
    if (text.empty()) return "an empty one";
    if (text.size() > most) return "one of " + std::to_string(text.size()) + " bytes";
    for (std::string_view rest = text; !rest.empty();) {
        const auto prefix = json_rpc::utf8_prefix(rest);
        if (!prefix.valid) return "one that is not UTF-8";
        const auto first = static_cast<unsigned char>(rest.front());
        if (first < 0x20 || first == 0x7f) return "one with a control character";
        rest.remove_prefix(prefix.size);
    }
    return {};
}

}  // namespace

std::string tensor_name_rejection(std::string_view name) {
    if (std::string rejection = text_rejection(name, kMaxNameBytes); !rejection.empty()) return rejection;
    if (name == "." || name == "..") return "the name of a folder";
    if (name.find('/') != std::string_view::npos) return "one with '/', which stands before the member of a set";
    if (name.starts_with("l-")) return "one that begins with \"l-\", as leases do";
    for (const std::string_view suffix : std::array<std::string_view, 3>{".npy", ".safetensors", ".raw"}) {
        if (name.ends_with(suffix)) return "one that ends in " + std::string(suffix) + ", which asks for that format";
    }
    return {};
}

std::string member_name_rejection(std::string_view name) {
    if (std::string rejection = text_rejection(name, kMaxMemberBytes); !rejection.empty()) return rejection;
    return name == "__metadata__" ? "\"__metadata__\", which safetensors keeps for itself" : "";
}

}  // namespace shared_tensor::runtime
