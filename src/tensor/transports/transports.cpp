#include <algorithm>
#include <array>

#include "protocol/codec/frame.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

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

Viability Transports::viable(TransportKind kind) const {
    const Transport* transport = find(kind);
    return transport != nullptr ? transport->viable() : Viability{"it is not built in"};
}

std::string Transports::viable_names() const {
    std::vector<TransportKind> kinds;
    for (const Transport* transport : transports_) {
        if (transport->viable()) kinds.push_back(transport->kind());
    }
    return join(kinds);
}

const Transports& inline_transports() {
    static const Transports kTransports({&data_transport(), &base64_transport(), &body_transport()});
    return kTransports;
}

}  // namespace shared_tensor::tensor
