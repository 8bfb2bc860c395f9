#include "tensor/shm_medium.hpp"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <utility>

#include <shared_tensor/value.hpp>

#include "tensor/at_tensor.hpp"
#include "tensor/bool_check.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

ShapeView view(at::IntArrayRef counts) { return {counts.data(), counts.size()}; }

Json content_of(const std::string& segment, const Region& region) {
    return {{"segment", segment}, {"offset", region.offset}, {"size", region.size}};
}

class ShmMedium final : public Medium {
public:
    explicit ShmMedium(ShmPeer& peer) : peer_(&peer) {}

    Way way() const override { return Way::shm; }
    Viability viable() const override { return peer_->viable(); }
    Viability carries(DType) const override { return {}; }

    bool holds(const codec::TensorHandle& handle) const override {
        const at::Tensor& tensor = handle.tensor();
        return tensor.is_cpu() && tensor.numel() > 0 && peer_->find(tensor.const_data_ptr()).has_value();
    }

    Imported import(const Descriptor& descriptor, const Incoming&) const override {
        const std::string& segment = region_text(descriptor, "segment");
        if (descriptor.extent.elements == 0) {
            parse_region(descriptor, 0, "segment");
            return {make_plain_handle(allocate(descriptor.dtype, descriptor.shape)), 0};
        }
        ShmPeer::Borrowed memory = peer_->borrow(segment, descriptor.lease);
        const Region region = parse_region(descriptor, memory.size, "segment");
        const std::byte* data = memory.data + region.offset;
        check_bools(descriptor, data);
        if (region.offset % size_of(descriptor.dtype) != 0)
            throw InvalidValue("shm.offset", "a multiple of the item size", std::to_string(region.offset));
        return {make_plain_handle(
                    view_of(data, std::move(memory.owner), descriptor.dtype, descriptor.shape, descriptor.strides)),
                0};
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        const at::Tensor& tensor = handle->tensor();
        if (tensor.numel() == 0) return {content_of("", {}), 0, {}, {}, nullptr};
        if (!tensor.is_cpu()) return copied(handle);
        auto place = peer_->find(tensor.const_data_ptr());
        return place ? lent(handle, std::move(*place)) : copied(handle);
    }

private:
    Exported lent(const codec::TensorPointer& handle, shm::SegmentPool::Place place) const {
        const at::Tensor& tensor = handle->tensor();
        const DType dtype = dtype_of(tensor);
        const Shape strides(tensor.strides().begin(), tensor.strides().end());
        const auto extent = extent_of(view(tensor.sizes()), strides, size_of(dtype));
        const bool plain = is_contiguous(view(tensor.sizes()), strides);
        const Region region{place.offset, plain ? extent->bytes : extent->reach};
        return exported(std::move(place.segment), region, 0, plain ? Shape() : strides, handle);
    }

    /// What is lent from now on is the copy: on its own, the lease keeps nothing else alive.
    Exported copied(const codec::TensorPointer& handle) const {
        const at::Tensor& tensor = handle->tensor();
        const DType dtype = dtype_of(tensor);
        const at::Tensor host = tensor.is_cpu() ? tensor : tensor.cpu();
        const auto bytes = static_cast<std::uint64_t>(host.numel()) * size_of(dtype);
        shm::PooledSegmentPointer segment = peer_->take(bytes);
        const auto* from = static_cast<const std::byte*>(host.const_data_ptr());
        if (host.is_contiguous()) {
            std::memcpy(segment->segment().data(), from, bytes);
        } else {
            gather(from, view(host.sizes()), view(host.strides()), size_of(dtype), segment->segment().data());
        }
        const Shape shape(host.sizes().begin(), host.sizes().end());
        const std::byte* data = segment->segment().data();
        const at::Tensor copy = view_of(data, segment, dtype, shape, {});
        return exported(std::move(segment), {0, bytes}, bytes, {}, tensor.is_cpu() ? make_plain_handle(copy) : handle);
    }

    Exported exported(shm::PooledSegmentPointer segment, const Region& region, std::uint64_t copied, Shape strides,
                      const codec::TensorPointer& tensor) const {
        Json content = content_of(segment->segment().id(), region);
        ShmPeer::Lent lent = peer_->lend(std::move(segment), region.size, tensor);
        return {std::move(content), copied, std::move(lent.lease), std::move(strides), std::move(lent.held)};
    }

    ShmPeer* peer_;
};

class AbsentMedium final : public Medium {
public:
    AbsentMedium(Way way, std::string reason) : way_(way), reason_(std::move(reason)) {}
    Way way() const override { return way_; }
    Viability viable() const override { return {reason_}; }
    Viability carries(DType) const override { return {reason_}; }
    Imported import(const Descriptor&, const Incoming&) const override { throw std::logic_error(reason_); }
    Exported export_to(const codec::TensorPointer&, OutgoingBody&) const override { throw std::logic_error(reason_); }

private:
    const Way way_;
    const std::string reason_;
};

}  // namespace

std::unique_ptr<Medium> make_shm_medium(ShmPeer& peer) { return std::make_unique<ShmMedium>(peer); }

std::unique_ptr<Medium> make_absent_medium(Way way, std::string reason) {
    return std::make_unique<AbsentMedium>(way, std::move(reason));
}

}  // namespace shared_tensor::tensor
