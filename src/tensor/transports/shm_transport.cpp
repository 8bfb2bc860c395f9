#include "tensor/transports/shm_transport.hpp"

#include <functional>
#include <map>
#include <new>
#include <system_error>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "local/segments/segment.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::tensor {

namespace {

std::string content_of(const std::string& segment, const Region& region) {
    std::string content = R"({"segment":)";
    json_rpc::print_json_string(segment, content);
    return content.append(",").append(region_members(region)).append("}");
}

/// Keeps the mapping of the sender's segment that has a tensor.
class LentTensor final : public codec::LentMemory {
public:
    /// `memory.owner` must keep `peer` alive.
    LentTensor(ShmPeer& peer, ShmPeer::Borrowed memory, std::byte* data, std::uint64_t bytes)
        : peer_(&peer), memory_(std::move(memory)), data_(data), bytes_(bytes) {}

    std::uint64_t bytes() const override { return bytes_; }
    bool shows(const void* address) const override {
        const auto* wanted = static_cast<const std::byte*>(address);
        const bool inside = !std::less<>()(wanted, data_) && std::less<>()(wanted, data_ + bytes_);
        return inside && state_.with([](const State& state) { return !state.taken; });
    }
    std::uint64_t take_over(std::shared_ptr<const void> counted) override {
        const bool first = state_.with([&](State& state) {
            if (state.taken) return false;
            local::own_pages(data_, static_cast<std::size_t>(bytes_));  // under the lock: later callers wait for it
            state.taken = true;
            state.counted.swap(counted);
            return true;
        });
        if (first) memory_.copied();
        return first ? bytes_ : 0;
    }
    MemoryBlock take(std::uint64_t bytes) const override {
        if (bytes < kShmMinBytes) return plain_block(bytes);
        try {
            local::PooledSegmentPointer segment = peer_->take(bytes);
            std::byte* data = segment->data();
            return {data, std::move(segment)};
        } catch (const CannotLend&) {
            return plain_block(bytes);
        }
    }

private:
    struct State {
        bool taken = false;
        std::shared_ptr<const void> counted;
    };
    ShmPeer* const peer_;
    const ShmPeer::Borrowed memory_;
    std::byte* const data_;
    const std::uint64_t bytes_;
    Guarded<State> state_;
};

class ShmTransport final : public Transport {
public:
    explicit ShmTransport(ShmPeer& peer) : peer_(&peer) {}

    TransportKind kind() const override { return TransportKind::shm; }
    Viability viable() const override { return peer_->viable(); }

    bool holds(const codec::TensorHandle& handle) const override {
        const TensorRef& tensor = handle.tensor();
        return tensor.elements() > 0 && peer_->find(tensor.data(), tensor.reach()).has_value();
    }

    Imported import(const Descriptor& descriptor, const Incoming&) const override {
        const bool is_read = descriptor.content == nullptr;
        const std::string& segment = is_read ? descriptor.place.segment : region_text(descriptor, "segment");
        if (descriptor.extent.elements == 0) {
            parse_region(descriptor, 0, {"segment"});
            return {make_handle(allocate(descriptor.dtype, descriptor.shape)), 0};
        }
        ShmPeer::Borrowed memory = peer_->borrow(segment, descriptor.lease);
        const Region region = is_read ? descriptor.place.region : parse_region(descriptor, memory.size, {"segment"});
        if (is_read) check_region(descriptor, region, memory.size);
        std::byte* data = memory.data + region.offset;
        check_bools(descriptor, data);
        if (region.offset % size_of(descriptor.dtype) != 0)
            throw InvalidValue("shm.offset", "a multiple of the item size", std::to_string(region.offset));
        const auto view = [&](std::shared_ptr<const void> owner) {
            return make_handle(view_of(data, std::move(owner), descriptor.dtype, descriptor.shape, descriptor.strides));
        };
        if (!memory.copied) return {view(std::move(memory.owner)), 0};
        auto lent = std::make_shared<LentTensor>(*peer_, std::move(memory), data, descriptor.extent.reach);
        return {view(lent), 0, 0, lent};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        const TensorRef& tensor = handle->tensor();
        if (tensor.elements() == 0) return {content_of("", {}), 0};
        const auto place = is_on_device(tensor) ? std::nullopt : peer_->find(tensor.data(), tensor.reach());
        // A reader cannot use elements that are not aligned.
        if (place && place->offset % size_of(tensor.dtype()) == 0) return lent(handle, *place);
        SharedCopy* copy = peer_->keeps_copies() ? shared_copy_of(*handle) : nullptr;
        local::PooledSegmentPointer segment;
        if (copy != nullptr) segment = copy->with([](const auto& held) { return held; });
        if (segment != nullptr && peer_->find(segment->data(), tensor.bytes()))
            return lent_copy(handle, std::move(segment), 0);
        segment = peer_->take(tensor.bytes());
        copy_elements(tensor, segment->data());
        Exported result = lent_copy(handle, segment, tensor.bytes());
        if (copy != nullptr) copy->with([&](auto& held) { held.swap(segment); });
        return result;
    }

private:
    Exported lent(const codec::TensorPointer& handle, local::SegmentPlace place) const {
        const TensorRef& tensor = handle->tensor();
        const bool plain = tensor.is_contiguous();
        const Region region{place.offset, plain ? tensor.bytes() : tensor.reach()};
        const Shape strides(tensor.strides().begin(), tensor.strides().end());
        return exported(std::move(place.segment), region, 0, plain ? Shape() : strides, handle);
    }

    /// Lends a copy under a handle of its own, so that the lease does not keep the original tensor alive.
    Exported lent_copy(const codec::TensorPointer& handle, local::PooledSegmentPointer segment,
                       std::uint64_t copied) const {
        const TensorRef& tensor = handle->tensor();
        const Region region{segment->offset(), tensor.bytes()};
        if (is_on_device(tensor)) return exported(std::move(segment), region, copied, {}, handle);
        const std::byte* data = segment->data();
        const codec::TensorPointer copy = make_handle(view_of(data, segment, tensor.dtype(), tensor.shape(), {}));
        return exported(std::move(segment), region, copied, {}, copy);
    }

    Exported exported(local::SegmentUsePointer segment, const Region& region, std::uint64_t copied, Shape strides,
                      const codec::TensorPointer& tensor) const {
        std::string content = content_of(segment->segment().id(), region);
        return {std::move(content), copied, peer_->lend(std::move(segment), region.size, tensor), std::move(strides)};
    }

    ShmPeer* peer_;
};

/// The memory of this process that clients may write to: start address and size in bytes.
using Writable = Guarded<std::map<const std::byte*, std::size_t, std::less<>>>;

/// A forked child has its own map, because it returns no results that its parent made.
constinit NeverDestroyed<OfThisProcess<Writable>> known;

Writable& writable() {
    return known.value.get([] { return std::make_unique<Writable>(); });
}

/// Keeps a segment, and its entry in writable(), while this process uses it.
class WritableSegment {
public:
    WritableSegment(local::PooledSegmentPointer segment, std::size_t bytes) : segment_(std::move(segment)) {
        writable().with([&](auto& all) { all.emplace(segment_->data(), bytes); });
    }
    WritableSegment(const WritableSegment&) = delete;
    WritableSegment& operator=(const WritableSegment&) = delete;
    ~WritableSegment() {
        writable().with([&](auto& all) { all.erase(segment_->data()); });
    }

private:
    const local::PooledSegmentPointer segment_;
};

}  // namespace

detail::CallMemory::Block SharedAllocation::take(std::string_view principal, std::size_t bytes, Writers writers) const {
    try {
        if (writers == Writers::clients_too) {
            auto segment = pool_->take(bytes, principal, local::Sharing::writable);
            void* const data = segment->data();
            return {data, std::make_shared<const WritableSegment>(std::move(segment), bytes)};
        }
        auto segment = pool_->take_place(bytes, principal);
        void* const data = segment->data();
        // A new shared_ptr that only tensors own: the pool also hands out `segment`, so its use count does not show
        // whether a tensor is alone (TensorRef::is_alone).
        return {data, std::make_shared<const local::PooledSegmentPointer>(std::move(segment))};
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {  // no file descriptor is left
    }
    return {};
}

bool is_writable_by_clients(const void* address) {
    const auto* wanted = static_cast<const std::byte*>(address);
    return writable().with([&](const auto& all) {
        auto next = all.upper_bound(wanted);
        if (next == all.begin()) return false;
        --next;
        return std::less<>()(wanted, next->first + next->second);
    });
}

std::unique_ptr<Transport> make_shm_transport(ShmPeer& peer) { return std::make_unique<ShmTransport>(peer); }

}  // namespace shared_tensor::tensor
