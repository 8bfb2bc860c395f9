#include "server/files/named_tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "local/segments/received_segment.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::server {

codec::Json placeholder(codec::Value& value, codec::TensorPointer tensor) {
    value.tensors.push_back(std::move(tensor));
    return codec::Json{{"$tensor", value.tensors.size() - 1}};
}

namespace {

constexpr std::uint64_t kMemberOverhead = 256;  // memory of one entry of the manifest
/// A segment costs a descriptor and at least a page. A smaller tensor is sent as cheaply as it is lent.
constexpr std::uint64_t kSmallest = 4096;

codec::Value value_of_tensor(codec::TensorPointer tensor) {
    codec::Value value;
    value.json = placeholder(value, std::move(tensor));
    return value;
}

codec::Value value_of_set(const tensor::TensorSet& set) {
    codec::Value value;
    codec::TensorPort port;  // they are handles already
    codec::JsonSink sink(value, port);
    sink.object(sink.root());
    for (const auto& [name, member] : set.manifest) {
        codec::Json tensor = placeholder(value, tensor::member_of(set, member));
        *static_cast<codec::Json*>(sink.member(sink.root(), name)) = std::move(tensor);
    }
    return value;
}

}  // namespace

std::string NamedValue::digest(const std::string& part, const std::function<std::string()>& make) const {
    constexpr std::size_t kMost = 4096;  // enough for about 16 GiB in the ranges that our clients fetch
    std::string known = digests_.with([&](const auto& digests) {
        const auto found = digests.find(part);
        return found == digests.end() ? std::string() : found->second;
    });
    if (!known.empty()) return known;
    known = make();
    digests_.with([&](auto& digests) {
        if (digests.size() >= kMost) digests.clear();
        digests.emplace(part, known);
    });
    return known;
}

std::uint64_t NamedValue::bytes() const {
    return std::max(memory()->bytes(), file_bytes) + kMemberOverhead * set.manifest.size();
}

std::shared_ptr<const codec::Value> NamedValue::whole() const {
    std::call_once(once_, [this] {
        whole_ = std::make_shared<const codec::Value>(is_set() ? value_of_set(set) : value_of_tensor(tensor));
    });
    return whole_;
}

tensor::TakeBlock NamedTensors::block_for(const std::string& owner) const {
    if (pool_ == nullptr) return tensor::plain_block;
    return [pool = pool_, owner](std::uint64_t bytes) {
        if (bytes < kSmallest) return tensor::plain_block(bytes);
        auto segment = pool->take(static_cast<std::size_t>(bytes), owner);
        std::byte* data = segment->segment().data();
        return tensor::Block{data, std::move(segment)};
    };
}

NamedTensors::Placed NamedTensors::place(const std::string& owner, const codec::TensorPointer& tensor) const {
    auto value = std::make_shared<NamedValue>();
    if (auto block = kept(owner, tensor)) {
        value->tensor = tensor::tensor_in(std::move(*block), tensor);
        return {std::move(value), 0};
    }
    const bool stays = can_seal(owner, tensor);
    value->tensor = stays ? tensor : tensor::copy_tensor(tensor, block_for(owner));
    return {std::move(value), stays ? 0 : tensor->bytes()};
}

/// Immutable memory of a client with the bytes of `tensor`, as a segment of the server's pool: it lives as long as the
/// name, whatever becomes of the client. Nullopt if the tensor is to be copied: its memory is not immutable, or the
/// tensor takes less than half of it, and the server would keep the rest too.
std::optional<tensor::Block> NamedTensors::kept(const std::string& owner, const codec::TensorPointer& tensor) const {
    if (pool_ == nullptr || tensor->on_device() || !tensor->tensor().is_contiguous()) return std::nullopt;
    const auto place =
        local::find_received(tensor->tensor().data(), tensor->bytes(),
                             [&](const local::ReceivedMemory& memory) { return memory.principal() == owner; });
    if (!place || place->offset % tensor::kMemberAlignment != 0) return std::nullopt;
    const local::SegmentFile& memory = place->segment->segment();
    if (!local::is_immutable(*memory.descriptor())) return std::nullopt;
    if (local::allocated_bytes(*memory.descriptor()) / 2 > tensor->bytes()) return std::nullopt;
    auto segment = pool_->adopt(memory.descriptor(), memory.size(), owner);
    return tensor::Block{segment->data() + place->offset, std::move(segment)};
}

local::PooledSegmentPointer NamedTensors::segment_of(const codec::TensorPointer& tensor) const {
    if (pool_ == nullptr || tensor->on_device() || tensor->bytes() == 0 || !tensor->tensor().is_contiguous())
        return nullptr;
    auto place = pool_->find(tensor->tensor().data());
    return place ? std::move(place->segment) : nullptr;
}

/// A version never changes. So a tensor may stay where it is only if no client, and no function that holds the tensor,
/// can write to it.
bool NamedTensors::can_seal(const std::string& owner, const codec::TensorPointer& tensor) const {
    const local::PooledSegmentPointer segment = segment_of(tensor);
    return segment != nullptr && segment->principal() == owner && tensor->tensor().is_alone() && segment->seal();
}

NamedTensors::Placed NamedTensors::place(const std::string& owner, const tensor::TensorMap& tensors) const {
    auto value = std::make_shared<NamedValue>();
    value->set = tensor::gather_set(tensors, block_for(owner));
    const std::uint64_t bytes = value->set.data->bytes();
    return {std::move(value), bytes};
}

NamedTensors::Placed NamedTensors::place(const std::string& owner, tensor::Manifest manifest,
                                         const codec::TensorPointer& data) const {
    auto value = std::make_shared<NamedValue>();
    if (auto block = kept(owner, data)) {
        tensor::check_bools(manifest, block->data);
        value->set = tensor::set_in(*block, data->bytes(), std::move(manifest));
        return {std::move(value), 0};
    }
    value->set = tensor::copy_set(std::move(manifest), data, block_for(owner));
    return {std::move(value), data->bytes()};
}

NamedTensors::Placed NamedTensors::adopt(const std::string& owner, tensor::FileContent content,
                                         std::uint64_t bytes) const {
    if (content.tensor != nullptr && pool_ != nullptr && segment_of(content.tensor) == nullptr) {
        Placed placed = place(owner, content.tensor);  // it is not in C order, or not in the memory of the file
        placed.value->metadata.insert(content.metadata.begin(), content.metadata.end());
        return placed;
    }
    auto value = std::make_shared<NamedValue>();
    value->metadata.insert(content.metadata.begin(), content.metadata.end());
    value->tensor = std::move(content.tensor);
    value->file_bytes = bytes;
    if (!value->is_set()) return {std::move(value), 0};
    const auto is_aligned = [&](const auto& one) {
        const auto first = reinterpret_cast<std::uintptr_t>(content.set.data->tensor().data());
        return (first + one.second.offset) % tensor::size_of(one.second.dtype) == 0;
    };
    if (std::all_of(content.set.manifest.begin(), content.set.manifest.end(), is_aligned)) {
        value->set = std::move(content.set);
        return {std::move(value), 0};
    }
    tensor::TensorMap members;
    for (const auto& [name, member] : content.set.manifest)
        members.emplace_hint(members.end(), name, tensor::member_of(content.set, member));
    Placed placed = place(owner, members);
    placed.value->metadata.swap(value->metadata);
    return placed;
}

std::string NamedTensors::metadata_rejection(const NamedMetadata& metadata) {
    constexpr std::size_t kMost = std::size_t{64} << 10;
    std::size_t bytes = 0;
    for (const auto& [key, text] : metadata)
        bytes += key.size() + text.size();
    return bytes <= kMost ? "" : std::to_string(bytes) + " bytes, and at most " + std::to_string(kMost) + " may be";
}

NamedTensors::Address NamedTensors::parse_address(std::string_view text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) return {text, {}};
    return {text.substr(0, slash), text.substr(slash + 1)};
}

std::shared_ptr<const codec::Value> NamedTensors::value(std::string_view owner, std::string_view name) const {
    const Address address = parse_address(name);
    const auto named = store_.find(owner, address.name);
    if (named == nullptr) return nullptr;
    const NamedValue& value = value_of(*named);
    if (address.member.empty()) return value.whole();
    const auto member = value.set.manifest.find(address.member);
    if (member == value.set.manifest.end()) return nullptr;
    return std::make_shared<const codec::Value>(value_of_tensor(tensor::member_of(value.set, member->second)));
}

}  // namespace shared_tensor::server
