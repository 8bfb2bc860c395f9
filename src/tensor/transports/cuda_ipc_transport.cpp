#include <limits>
#include <utility>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/value.hpp>

#include "tensor/device/devices.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr const char* kDevicePrefix = "cuda:";

std::string to_text(const IpcBytes& bytes) { return encode_base64(bytes); }

IpcBytes from_text(const Descriptor& descriptor, std::string_view name) {
    const std::string& text = region_text(descriptor, name);
    IpcBytes bytes;
    if (decoded_base64_size(text) != bytes.size() || !decode_base64_into(text, bytes.data())) {
        throw InvalidValue("cuda_ipc." + std::string(name), "base64 of 64 bytes",
                           "string of " + std::to_string(text.size()) + " characters");
    }
    return bytes;
}

/// The members of a descriptor that are checked before anything is opened.
struct Wanted {
    IpcBytes handle{};
    std::optional<IpcBytes> event;  ///< nullopt: the work on the tensor was done when the descriptor was made
    std::uint64_t generation = 0;
    Region region;
};

Wanted parse(const Descriptor& descriptor, std::uint64_t device_bytes) {
    Wanted wanted;
    wanted.region = parse_region(descriptor, device_bytes, {"handle", "event", "generation"});
    if (wanted.region.offset % size_of(descriptor.dtype) != 0)
        throw InvalidValue("cuda_ipc.offset", "a multiple of the item size", std::to_string(wanted.region.offset));
    wanted.generation = region_natural(descriptor, "generation");
    if (descriptor.extent.elements == 0) return wanted;
    wanted.handle = from_text(descriptor, "handle");
    if (!region_text(descriptor, "event").empty()) wanted.event = from_text(descriptor, "event");
    return wanted;
}

class CudaIpcTransport final : public Transport {
public:
    explicit CudaIpcTransport(DevicePeer& peer) : peer_(&peer) {}

    TransportKind kind() const override { return TransportKind::cuda_ipc; }
    Viability viable() const override {
        Viability here = Devices::of_process().viable();
        return here ? peer_->viable() : here;
    }
    Viability fits(const codec::TensorHandle& handle) const override {
        return {handle.on_device() ? "" : "the tensor lies in host memory"};
    }

    Imported import(const Descriptor& descriptor, const Incoming& incoming) const override {
        const Devices::Found found = device_of(descriptor);
        const IpcDevice& device = *found.kind.device;
        const Wanted wanted = parse(descriptor, device.devices()[found.index].memory_bytes);
        if (descriptor.extent.elements == 0)
            return {make_handle(device.empty(found.index, descriptor.dtype, descriptor.shape)), 0};
        try {
            IpcHandleCache::Borrowed block = borrow(descriptor, found, wanted);
            if (wanted.region.offset > block.bytes || wanted.region.size > block.bytes - wanted.region.offset) {
                throw InvalidValue("cuda_ipc.size",
                                   "a part of the block, which has " + std::to_string(block.bytes) + " bytes",
                                   std::to_string(wanted.region.offset) + " + " + std::to_string(wanted.region.size));
            }
            const TensorRef lent = device.view(found.index, block.base + wanted.region.offset, std::move(block.owner),
                                               descriptor.dtype, descriptor.shape, descriptor.strides);
            const TensorRef tensor = incoming.borrow ? lent : device.copy(lent);
            if (descriptor.dtype == DType::bool_ && has_odd_bools(tensor))
                throw InvalidValue("cuda_ipc", "bytes 0 and 1 for dtype bool", "other bytes");
            return {make_handle(tensor), incoming.borrow ? 0 : descriptor.extent.bytes};
        } catch (const DeviceRejected& rejected) {
            throw InvalidValue("cuda_ipc", "a tensor that the device can share", rejected.what());
        }
    }

    Exported export_to(const codec::TensorPointer& handle, OutgoingBody&) const override {
        const TensorRef& tensor = handle->tensor();
        const auto kind = Devices::of_process().holder(tensor);
        if (!kind) throw CannotLend("the tensor lies on a device that this process cannot share");
        try {
            return tensor.elements() == 0 ? empty(*kind, tensor) : lent(*kind, tensor, is_kept(*handle));
        } catch (const DeviceRejected& rejected) {
            throw CannotLend(rejected.what());
        }
    }

private:
    /// Blocks until the bytes are read, piece by piece.
    static bool has_odd_bools(const TensorRef& tensor) {
        ElementPieces pieces{ElementReader(make_handle(tensor))};
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
            const Shape shape{static_cast<std::int64_t>(piece.size())};
            if (tensor::has_odd_bools(DType::bool_, shape, {}, piece.data())) return true;
        }
        return false;
    }

    static Devices::Found device_of(const Descriptor& descriptor) {
        const std::string_view text = descriptor.device;
        const auto found = text.starts_with(kDevicePrefix) ? Devices::of_process().find(text.substr(5)) : std::nullopt;
        if (found) return *found;
        std::string seen;
        for (const DeviceInfo& one : Devices::of_process().list())
            seen.append(seen.empty() ? "" : ", ").append(kDevicePrefix).append(one.uuid);
        throw InvalidValue("device", "a device that is seen here (" + seen + ")", descriptor.device);
    }

    /// Marks the lease as in use, waits for the event and borrows the block, in this order: if a later step fails, only
    /// the use of the lease must be undone.
    IpcHandleCache::Borrowed borrow(const Descriptor& descriptor, const Devices::Found& found,
                                    const Wanted& wanted) const {
        std::function<void()> done = peer_->use(descriptor.lease);
        const auto not_opened = [&] {
            if (!peer_->keeps_unopened()) done();
        };
        try {
            auto use = found.kind.device->use(found.index, wanted.event ? &*wanted.event : nullptr);
            return found.kind.handles->borrow({found.index, wanted.handle, wanted.generation, peer_->owner()},
                                              std::move(use), done);
        } catch (const DeviceRejected& rejected) {
            not_opened();
            throw CannotOpen("cuda_ipc.event", "an event that this process can open", rejected.what());
        } catch (const CannotOpen&) {
            not_opened();
            throw;
        } catch (...) {
            done();
            throw;
        }
    }

    Exported empty(const Devices::Kind& kind, const TensorRef& tensor) const {
        const auto devices = kind.device->devices();
        const std::size_t index = kind.device->index_of(tensor);
        if (index >= devices.size() || !peer_->sees(devices[index].uuid))
            throw CannotLend("the reader does not see the tensor's device");
        return {content_of("", {}, "", 0), 0, {}, {}, kDevicePrefix + devices[index].uuid};
    }

    /// Lends a tensor. If it is `kept` for other readers it lends a copy, because the reader can write to lent memory.
    Exported lent(const Devices::Kind& kind, const TensorRef& tensor, bool kept) const {
        const DevicePlace place = kind.device->place(tensor);
        const auto devices = kind.device->devices();
        if (place.device >= devices.size()) throw CannotLend("this process does not see the tensor's device any more");
        const std::string& uuid = devices[place.device].uuid;
        if (!peer_->sees(uuid)) throw CannotLend("the reader does not see the device " + uuid);
        // Memory of another process is copied too: its lease is for this process only, and CUDA cannot export it again.
        if (!kept && !kind.handles->contains(place.base + place.offset)) return lent(kind, tensor, place, uuid, 0);
        const TensorRef own = kind.device->copy(tensor);
        return lent(kind, own, kind.device->place(own), uuid, own.bytes());
    }

    Exported lent(const Devices::Kind& kind, const TensorRef& tensor, const DevicePlace& place, const std::string& uuid,
                  std::uint64_t copied) const {
        if (!place.rejection.empty()) throw CannotLend(place.rejection);
        const bool plain = tensor.is_contiguous();
        Shape strides(tensor.strides().begin(), tensor.strides().end());
        const IpcBytes handle = kind.device->export_block(place);
        auto event = kind.device->record(place.device);
        std::string content = content_of(to_text(handle), {place.offset, plain ? tensor.bytes() : tensor.reach()},
                                         event != nullptr ? to_text(*event) : std::string(), place.generation);
        Lending lent = peer_->lend(
            std::make_shared<const LentBlock>(tensor, handle, place, std::move(event), kind.handles->exports()));
        return {std::move(content), copied, std::move(lent), plain ? Shape() : std::move(strides),
                kDevicePrefix + uuid};
    }

    static std::string content_of(const std::string& handle, const Region& region, const std::string& event,
                                  std::uint64_t generation) {
        std::string content = R"({"handle":)";
        json_rpc::print_json_string(handle, content);
        json_rpc::print_json_string(event, content.append(R"(,"event":)"));
        content.append(R"(,"generation":)").append(std::to_string(generation)).append(",");
        return content.append(region_members(region)).append("}");
    }

    DevicePeer* const peer_;
};

}  // namespace

std::unique_ptr<Transport> make_cuda_ipc_transport(DevicePeer& peer) {
    return std::make_unique<CudaIpcTransport>(peer);
}

}  // namespace shared_tensor::tensor
