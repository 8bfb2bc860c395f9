#include "tensor/transports/transport.hpp"

#include <algorithm>
#include <array>

#include "base/bytes/field_list.hpp"
#include "protocol/codec/frame.hpp"

namespace shared_tensor::tensor {

namespace {

template <class T>
void add_once(std::vector<T>& list, T item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

}  // namespace

TransportList parse_transports(std::string_view list) {
    TransportList requested;
    for_each_in(list, [&](std::string_view name) {
        if (const auto transport = parse_transport(name)) {
            add_once(requested.transports, *transport);
        } else {
            add_once(requested.unknown, std::string(name));
        }
    });
    return requested;
}

Region OutgoingBody::add(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
    if (bytes.empty()) return {};
    static constexpr std::array<std::byte, codec::kFrameAlignment> kPadding{};
    const std::uint64_t offset = codec::frame_aligned(size_);
    if (offset != size_) parts_.push_back({std::span(kPadding).first(offset - size_), nullptr});
    parts_.push_back({bytes, std::move(owner)});
    size_ = offset + bytes.size();
    return {offset, bytes.size()};
}

const Transport* Transports::find(TransportKind kind) const {
    const auto found = std::find_if(transports_.begin(), transports_.end(),
                                    [&](const Transport* transport) { return transport->kind() == kind; });
    return found == transports_.end() ? nullptr : *found;
}

Transports Transports::with(const Transport& one) const {
    Transports all(*this);
    all.transports_.insert(all.transports_.begin(), &one);
    return all;
}

Viability Transports::viable(TransportKind kind) const {
    if (const Transport* transport = find(kind)) return transport->viable();
    const auto reason = absent_.find(kind);
    return {reason != absent_.end() ? reason->second : "it is not built in"};
}

std::string Transports::viable_names() const {
    std::vector<TransportKind> kinds;
    for (const Transport* transport : transports_) {
        if (transport->viable()) kinds.push_back(transport->kind());
    }
    return join(kinds);
}

}  // namespace shared_tensor::tensor
