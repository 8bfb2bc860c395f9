#include "tensor/device/devices.hpp"

#include <atomic>
#include <charconv>
#include <stdexcept>

#include "base/system/fork.hpp"
#include "tensor/device/cuda/cuda_device.hpp"

namespace shared_tensor::tensor {

namespace {

constinit NeverDestroyed<OfThisProcess<Devices>> all;
constinit std::atomic<bool> cuda_in_use{false};  // in this process or in a process that it was forked from
constinit std::atomic<DeviceKind> added_kind{nullptr};

/// Returns N of "cuda:N", 0 for "cuda", nullopt for any other text.
std::optional<std::size_t> ordinal_in(std::string_view device) {
    constexpr std::string_view kCuda = "cuda";
    if (device == kCuda) return 0;
    if (!device.starts_with(kCuda) || device.substr(kCuda.size(), 1) != ":") return std::nullopt;
    const std::string_view digits = device.substr(kCuda.size() + 1);
    std::size_t ordinal = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    return whole ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

void add_device_kind(DeviceKind kind) {
    DeviceKind before = nullptr;
    if (!added_kind.compare_exchange_strong(before, kind) && before != kind)
        throw std::logic_error("this process has another kind of device beside CUDA already");
}

Devices& Devices::of_process() {
    return all.value.get([] { return std::unique_ptr<Devices>(new Devices); });
}

Devices::Devices()
    : is_child_of_cuda_(cuda_in_use.load()),
      cuda_handles_(cuda_device() != nullptr ? std::make_unique<IpcHandleCache>(*cuda_device()) : nullptr) {}

std::array<Devices::Kind, 2> Devices::kinds() const {
    std::array<Kind, 2> all{Kind{cuda_device(), cuda_handles_.get()}, {}};
    if (const DeviceKind added = added_kind.load()) {
        std::call_once(added_once_, [&] { added_handles_ = std::make_unique<IpcHandleCache>(added()); });
        all[1] = {&added(), added_handles_.get()};
    }
    return all;
}

Viability Devices::use_cuda(UseCuda use) {
    if (use == UseCuda::no) return {"this process was told not to use CUDA"};
    if (is_child_of_cuda_) return {"this process was forked from one that uses CUDA, which CUDA does not allow"};
    if (use == UseCuda::if_loaded && !cuda_is_loaded())
        return {"this process does not use CUDA (libcuda.so.1 is not loaded)"};
    const auto known = cuda_use_.with([](const auto& held) { return held; });
    if (known) return *known;
    Viability loaded = cuda_viable();  // without the lock, because it may take long; two calls do no harm
    if (loaded) cuda_in_use.store(true);
    cuda_use_.with([&](auto& held) { held = loaded; });
    return loaded;
}

std::vector<Devices::Kind> Devices::usable() const {
    std::vector<Kind> usable;
    const bool uses_cuda = cuda_use_.with([](const auto& held) { return held.has_value() && bool(*held); });
    for (const Kind& kind : kinds()) {
        const bool switched_on = kind.device != nullptr && (kind.device != cuda_device() || uses_cuda);
        if (switched_on && kind.device->viable()) usable.push_back(kind);
    }
    return usable;
}

Viability Devices::viable() const {
    if (!usable().empty()) return {};
    const auto asked = cuda_use_.with([](const auto& held) { return held; });
    if (asked) return *asked ? cuda_viable() : *asked;
    return {"this process uses no GPU"};
}

std::vector<DeviceInfo> Devices::list() const {
    std::vector<DeviceInfo> all;
    for (const Kind& kind : usable()) {
        for (DeviceInfo& one : kind.device->devices())
            all.push_back(std::move(one));
    }
    return all;
}

std::optional<Devices::Found> Devices::find(std::string_view uuid) const {
    for (const Kind& kind : usable()) {
        const auto list = kind.device->devices();
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (list[i].uuid == uuid) return Found{kind, i};
        }
    }
    return std::nullopt;
}

std::optional<Devices::Kind> Devices::holder(const TensorRef& tensor) const noexcept {
    for (const Kind& kind : kinds()) {
        if (kind.device != nullptr && kind.device->holds(tensor)) return kind;
    }
    return std::nullopt;
}

void Devices::forget(std::uint64_t owner) {
    for (const Kind& kind : kinds()) {
        if (kind.handles != nullptr) kind.handles->forget(owner);
    }
}

IpcHandleCacheStats Devices::handles() const {
    IpcHandleCacheStats sum;
    for (const Kind& kind : kinds()) {
        if (kind.handles == nullptr) continue;
        const IpcHandleCacheStats more = kind.handles->stats();
        sum.open += more.open;
        sum.idle += more.idle;
        sum.opened += more.opened;
        sum.closed += more.closed;
        sum.borrowed += more.borrowed;
    }
    return sum;
}

const IpcDevice& device_of(const TensorRef& tensor) {
    const auto kind = Devices::of_process().holder(tensor);
    if (!kind) throw DeviceRejected("the tensor lies on a device that this process knows nothing of");
    return *kind->device;
}

bool is_on_device(const TensorRef& tensor) noexcept {
    const DeviceKind other = added_kind.load();
    return tensor.device().kind != Device::Kind::cpu || (other != nullptr && other().holds(tensor));
}

std::string rejection_of_placement(std::string_view device, std::string_view dtype) {
    if (!dtype.empty()) {
        const auto known = parse_dtype(dtype);
        if (!known || !is_floating_point(*known))
            return "the dtype \"" + std::string(dtype) + "\" is not a floating-point dtype, such as float32";
    }
    if (device.empty() || device == "cpu") return {};
    const auto ordinal = ordinal_in(device);
    if (!ordinal) return "the device \"" + std::string(device) + "\" is not cpu, cuda or cuda:N";
    const std::size_t count = count_of_gpus();
    if (count == 0) return "the device " + std::string(device) + " cannot be used: this process has no CUDA";
    if (*ordinal >= count)
        return "the device " + std::string(device) + " is not there: there are " + std::to_string(count);
    return {};
}

}  // namespace shared_tensor::tensor
