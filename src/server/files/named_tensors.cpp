#include "server/files/named_tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <system_error>
#include <utility>

#include "base/bytes/ids.hpp"
#include "local/segments/received_segment.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"
#include "server/state/saved_state.hpp"

namespace shared_tensor::server {

json_rpc::Error version_error(const runtime::TensorStore::Rejected& rejected, const runtime::WantedVersion& wanted,
                              bool has_base) {
    const std::string now = std::to_string(rejected.version);
    json_rpc::Error error =
        rejected.is_low
            ? json_rpc::invalid_params("version", "more than " + now + ", the version now",
                                       std::to_string(wanted.version.value_or(0)))
            : json_rpc::invalid_params(has_base ? "base" : "if_version",
                                       now + (rejected.version > 0 ? ", the version now" : ": there is none"),
                                       std::to_string(wanted.if_version.value_or(0)));
    error.data["version"] = rejected.version;
    return error;
}

codec::Json placeholder(codec::Value& value, codec::TensorPointer tensor) {
    value.tensors.push_back(std::move(tensor));
    return codec::Json{{"$tensor", value.tensors.size() - 1}};
}

namespace {

constexpr std::uint64_t kMemberOverhead = 512;  // memory of one entry of the manifest and of the file
/// A segment costs a descriptor and at least a page. A smaller tensor is sent as cheaply as it is lent.
constexpr std::uint64_t kSmallest = 4096;

codec::Value value_of_tensor(codec::TensorPointer tensor) {
    codec::Value value;
    value.json = placeholder(value, std::move(tensor));
    return value;
}

codec::Value value_of_set(tensor::TensorMap members) {
    codec::Value value;
    codec::TensorPort port;  // they are handles already
    codec::JsonSink sink(value, port);
    sink.object(sink.root());
    for (auto& [name, member] : members) {
        codec::Json tensor = placeholder(value, std::move(member));
        *static_cast<codec::Json*>(sink.member(sink.root(), name)) = std::move(tensor);
    }
    return value;
}

NamedBlock block_of(tensor::TensorSet set, std::uint64_t bytes = 0) {
    bytes = std::max(bytes, set.data->bytes());
    return {random_hex(16), std::move(set), bytes};
}

std::shared_ptr<NamedValue> one_value(codec::TensorPointer tensor) {
    auto value = std::make_shared<NamedValue>();
    value->tensor = std::move(tensor);
    return value;
}

std::shared_ptr<NamedValue> value_of_block(NamedBlock block) {
    auto value = std::make_shared<NamedValue>();
    value->blocks.push_back(std::move(block));
    return value;
}

/// Does `work`. Throws server::Rejected, with the reason, if there is no memory for it.
template <class Work>
auto or_rejected(Work work) {
    try {
        return work();
    } catch (const NotStored& error) {
        throw Rejected(json_rpc::out_of_memory(error.what()));
    } catch (const std::system_error&) {
        throw Rejected(json_rpc::out_of_memory(
            "the server has no descriptor left for shared memory: start it with a higher limit of open files"));
    } catch (const std::bad_alloc&) {
        throw Rejected(
            json_rpc::out_of_memory("there is no memory for these tensors: delete others, wait until readers let old "
                                    "versions go, or start the server with a higher --max-shared-bytes"));
    }
}

/// Bytes of the members with the gaps between them: those of replaced members are not counted.
std::uint64_t bytes_in_use(const NamedBlock& block) {
    std::uint64_t sum = 0;
    for (const auto& [name, member] : block.set.manifest)
        sum += (member.bytes + tensor::kMemberAlignment - 1) / tensor::kMemberAlignment * tensor::kMemberAlignment;
    return sum;
}

/// Takes the members out of the blocks that are not worth keeping.
tensor::TensorMap take_sparse(std::vector<NamedBlock>& blocks) {
    tensor::TensorMap members;
    const auto largest = std::max_element(blocks.begin(), blocks.end(),
                                          [](const auto& one, const auto& other) { return one.bytes < other.bytes; });
    const std::string kept = blocks.size() > NamedTensors::kMaxBlocks ? largest->id : std::string();
    std::erase_if(blocks, [&](const NamedBlock& block) {
        const bool is_full = bytes_in_use(block) >= block.bytes / 2;
        if (is_full && (kept.empty() || block.id == kept)) return false;
        for (const auto& [name, member] : block.set.manifest)
            members.emplace(name, tensor::member_of(block.set, member));
        return true;
    });
    return members;
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

std::size_t NamedValue::size() const {
    std::size_t count = 0;
    for (const NamedBlock& block : blocks)
        count += block.set.manifest.size();
    return count;
}

codec::TensorPointer NamedValue::member(std::string_view name) const {
    for (const NamedBlock& block : blocks) {
        const auto found = block.set.manifest.find(name);
        if (found != block.set.manifest.end()) return tensor::member_of(block.set, found->second);
    }
    return nullptr;
}

tensor::TensorMap NamedValue::members() const {
    tensor::TensorMap members;
    for (const NamedBlock& block : blocks) {
        for (const auto& [name, member] : block.set.manifest)
            members.emplace(name, tensor::member_of(block.set, member));
    }
    return members;
}

std::uint64_t NamedValue::data_bytes() const {
    std::uint64_t sum = is_set() ? 0 : tensor->bytes();
    for (const NamedBlock& block : blocks)
        sum += block.set.data->bytes();
    return sum;
}

std::uint64_t NamedValue::bytes() const {
    std::uint64_t sum = is_set() ? 0 : std::max(tensor->bytes(), file_bytes);
    for (const NamedBlock& block : blocks)
        sum += block.bytes;
    for (const auto& [key, text] : metadata)
        sum += key.size() + text.size();
    return sum + kMemberOverhead * size();
}

std::shared_ptr<const codec::Value> NamedValue::whole() const {
    std::call_once(once_, [this] {
        whole_ = std::make_shared<const codec::Value>(is_set() ? value_of_set(members()) : value_of_tensor(tensor));
    });
    return whole_;
}

std::shared_ptr<const tensor::TensorFile> NamedValue::file() const {
    std::call_once(file_once_, [this] {
        file_ =
            std::make_shared<const tensor::TensorFile>(tensor::file_of(members(), {metadata.begin(), metadata.end()}));
    });
    return file_;
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

tensor::Block NamedTensors::take_block(const std::string& owner, std::uint64_t bytes) const {
    return or_rejected([&] { return block_for(owner)(bytes); });
}

NamedTensors::Placed NamedTensors::place(const std::string& owner, const codec::TensorPointer& tensor) const {
    if (auto block = kept(owner, tensor)) return {one_value(tensor::tensor_in(std::move(*block), tensor)), 0};
    if (can_seal(owner, tensor)) return {one_value(tensor), 0};
    return {one_value(tensor::copy_tensor(tensor, block_for(owner))), tensor->bytes()};
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
    tensor::TensorSet set = tensor::gather_set(tensors, block_for(owner));
    tensor::check_bools(set.manifest, set.data->tensor().data());
    const std::uint64_t bytes = set.data->bytes();
    return {value_of_block(block_of(std::move(set))), bytes};
}

NamedTensors::Placed NamedTensors::place(const std::string& owner, tensor::Manifest manifest,
                                         const codec::TensorPointer& data) const {
    if (auto block = kept(owner, data)) {
        tensor::check_bools(manifest, block->data);
        return {value_of_block(block_of(tensor::set_in(*block, data->bytes(), std::move(manifest)))), 0};
    }
    return {value_of_block(block_of(tensor::copy_set(std::move(manifest), data, block_for(owner)))), data->bytes()};
}

NamedTensors::Placed NamedTensors::adopt(const std::string& owner, tensor::FileContent content,
                                         std::uint64_t bytes) const {
    Placed placed;
    if (content.tensor != nullptr && pool_ != nullptr && segment_of(content.tensor) == nullptr) {
        placed = place(owner, content.tensor);  // it is not in C order, or not in the memory of the file
    } else if (content.tensor != nullptr) {
        placed.value = one_value(std::move(content.tensor));
        placed.value->file_bytes = bytes;
    } else {
        placed.value = value_of_block(block_of(std::move(content.set), bytes));
        const tensor::TensorSet& set = placed.value->blocks.front().set;
        const auto is_aligned = [&](const auto& one) {
            const auto first = reinterpret_cast<std::uintptr_t>(set.data->tensor().data());
            return (first + one.second.offset) % tensor::size_of(one.second.dtype) == 0;
        };
        if (!std::all_of(set.manifest.begin(), set.manifest.end(), is_aligned))
            placed = place(owner, placed.value->members());
    }
    placed.value->metadata.insert(content.metadata.begin(), content.metadata.end());
    return placed;
}

NamedTensors::Placed NamedTensors::place_own(const std::string& owner, const codec::TensorPointer& tensor) const {
    const auto segment = segment_of(tensor);
    if (segment == nullptr) return {one_value(tensor::copy_own_tensor(tensor, block_for(owner))), tensor->bytes()};
    Placed placed{one_value(tensor), 0};
    const std::byte* const end = tensor->tensor().data() + tensor->bytes();
    placed.value->file_bytes = static_cast<std::uint64_t>(end - segment->segment().data());
    return placed;
}

NamedTensors::Placed NamedTensors::place_own(const std::string& owner, tensor::TensorMap tensors) const {
    const auto span = pool_ == nullptr ? std::nullopt : tensor::span_of(tensors);
    const auto place = span ? pool_->find(span->data()) : std::nullopt;
    if (!place || span->size() > place->segment->segment().size() - place->offset)
        return NamedTensors::place(owner, tensors);
    const std::uint64_t held = place->offset + span->size();
    return {value_of_block(block_of(tensor::set_in_place(std::move(tensors), *span), held)), 0};
}

void NamedTensors::fail(const Put& what, const Rejected& rejected) {
    if (!rejected.conflict && !rejected.is_low) throw server::Rejected(json_rpc::out_of_memory(rejected.reason));
    throw server::Rejected(version_error(rejected, what.wanted, what.has_base));
}

void NamedTensors::check(const Put& what) const {
    if (store_.closed()) throw server::Rejected(json_rpc::shutting_down());
    if (const auto rejected = store_.rejection(what.owner, what.name, what.bytes, what.wanted)) fail(what, *rejected);
}

void NamedTensors::check_name(std::string_view name) {
    if (const std::string rejection = runtime::tensor_name_rejection(name); !rejection.empty())
        reject("name", "another name", rejection);
}

NamedTensors::Made NamedTensors::put(const Put& what, const std::function<Placed()>& place) {
    check(what);
    runtime::NamedPointer base;
    if (what.has_base) base = store_.find(what.owner, what.name);
    if (base != nullptr) {
        const std::uint64_t now = base->version;  // another put may have been faster
        if (now != what.wanted.if_version.value_or(now)) fail(what, {true, false, now, {}});
        Put all = what;
        all.bytes += base->content->bytes();
        check(all);
    }
    return or_rejected([&] {
        Placed placed = place();
        if (what.has_base) placed = with_changes(what.owner, base, std::move(placed));
        auto made = publish(what.owner, what.name, std::move(placed.value), what.wanted);
        if (const auto* rejected = std::get_if<Rejected>(&made)) fail(what, *rejected);
        return Made{std::get<runtime::NamedPointer>(std::move(made)), placed.copied};
    });
}

std::variant<runtime::NamedPointer, NamedTensors::Rejected> NamedTensors::publish(
    const std::string& owner, const std::string& name, std::shared_ptr<NamedValue> value,
    const runtime::WantedVersion& wanted) {
    if (state_ == nullptr) return store_.put(owner, name, std::move(value), wanted);
    const std::string saved = state_->save(*value);
    return store_.put(owner, name, std::move(value), wanted,
                      [&](const runtime::Named& named) { state_->published(named, saved); });
}

std::variant<runtime::NamedPointer, NamedTensors::Rejected> NamedTensors::remove(
    const std::string& owner, const std::string& name, std::optional<std::uint64_t> if_version) {
    if (state_ == nullptr) return store_.remove(owner, name, if_version);
    return store_.remove(owner, name, if_version, [&](const runtime::Named& last) { state_->removed(last); });
}

NamedTensors::Placed NamedTensors::with_changes(const std::string& owner, const runtime::NamedPointer& base,
                                                Placed changes) const {
    if (base == nullptr || !value_of(*base).is_set())
        throw InvalidValue("base", "a version of a set", base == nullptr ? "none" : "a version of one tensor");
    if (!changes.value->is_set())
        throw InvalidValue("base", "tensors, or manifest with data: the members that changed", "one tensor");
    const auto value = std::make_shared<NamedValue>();
    value->metadata = std::move(changes.value->metadata);
    value->metadata.insert(value_of(*base).metadata.begin(), value_of(*base).metadata.end());
    if (const std::string rejection = metadata_rejection(value->metadata); !rejection.empty())
        throw InvalidValue("metadata", "shorter texts, with those of base", rejection);
    for (NamedBlock block : value_of(*base).blocks) {
        std::erase_if(block.set.manifest, [&](const auto& one) {
            return std::any_of(changes.value->blocks.begin(), changes.value->blocks.end(),
                               [&](const auto& change) { return change.set.manifest.contains(one.first); });
        });
        if (!block.set.manifest.empty()) value->blocks.push_back(std::move(block));
    }
    std::move(changes.value->blocks.begin(), changes.value->blocks.end(), std::back_inserter(value->blocks));
    if (value->size() > kMaxMembers) {
        throw InvalidValue("tensors", "at most " + std::to_string(kMaxMembers) + " members with those of base",
                           std::to_string(value->size()));
    }
    const tensor::TensorMap moved = take_sparse(value->blocks);
    if (!moved.empty()) {
        Placed gathered = place(owner, moved);
        changes.copied += gathered.copied;
        value->blocks.push_back(std::move(gathered.value->blocks.front()));
    }
    return {value, changes.copied};
}

std::string NamedTensors::metadata_rejection(const NamedMetadata& metadata) {
    constexpr std::size_t kMost = std::size_t{256} << 10;
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
    codec::TensorPointer member = value.member(address.member);
    return member != nullptr ? std::make_shared<const codec::Value>(value_of_tensor(std::move(member))) : nullptr;
}

}  // namespace shared_tensor::server
