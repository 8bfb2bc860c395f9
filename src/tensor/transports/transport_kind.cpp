#include "tensor/transports/transport_kind.hpp"

#include <algorithm>

namespace shared_tensor::tensor {

namespace {

constexpr std::array<std::string_view, kTransportKinds.size()> kNames{"data", "base64",   "body",
                                                                      "shm",  "cuda_ipc", "url"};

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <class T>
void add_once(std::vector<T>& list, T item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

}  // namespace

std::string_view name_of(TransportKind transport) { return kNames[static_cast<std::size_t>(transport)]; }

std::optional<TransportKind> parse_transport(std::string_view name) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) return std::nullopt;
    return kTransportKinds[static_cast<std::size_t>(found - kNames.begin())];
}

TransportList parse_transports(std::string_view list) {
    TransportList requested;
    while (!list.empty()) {
        const auto comma = std::min(list.find(','), list.size());
        const auto word = trimmed(list.substr(0, comma));
        list.remove_prefix(std::min(comma + 1, list.size()));
        if (word.empty()) continue;
        if (const auto transport = parse_transport(word)) {
            add_once(requested.transports, *transport);
        } else {
            add_once(requested.unknown, std::string(word));
        }
    }
    return requested;
}

std::string join(const std::vector<TransportKind>& transports) {
    std::string text;
    for (const TransportKind transport : transports)
        text.append(text.empty() ? "" : ", ").append(name_of(transport));
    return text;
}

}  // namespace shared_tensor::tensor
