#include <algorithm>
#include <array>

#include "codec/frame.hpp"
#include "tensor/medium.hpp"

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

const Medium* Media::find(Way way) const {
    const auto found =
        std::find_if(media_.begin(), media_.end(), [&](const Medium* medium) { return medium->way() == way; });
    return found == media_.end() ? nullptr : *found;
}

Viability Media::viable(Way way) const {
    const Medium* medium = find(way);
    return medium != nullptr ? medium->viable() : Viability{"it is not built in"};
}

std::string Media::viable_names() const {
    std::vector<Way> ways;
    for (const Medium* medium : media_) {
        if (medium->viable()) ways.push_back(medium->way());
    }
    return join(ways);
}

const Media& inline_media() {
    static const Media kMedia({&data_medium(), &base64_medium(), &body_medium()});
    return kMedia;
}

}  // namespace shared_tensor::tensor
