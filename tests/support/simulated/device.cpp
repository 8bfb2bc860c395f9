#include "support/simulated/device.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <thread>

#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor::simulated {

namespace {

constinit NeverDestroyed<OfThisProcess<SimulatedDevice>> all;
constinit std::atomic<std::size_t> enabled_devices{0};  // a forked child starts with the number of its parent

}  // namespace

SimulatedDevice& SimulatedDevice::of_process() {
    return all.value.get([] {
        auto made = std::unique_ptr<SimulatedDevice>(new SimulatedDevice);
        made->read_environment();
        return made;
    });
}

void SimulatedDevice::enable(std::size_t devices) { enabled_devices.store(devices); }
std::size_t SimulatedDevice::enabled() const { return enabled_devices.load(); }

void SimulatedDevice::read_environment() {
    const char* const faults = std::getenv("SHARED_TENSOR_SIMULATED_FAULTS");
    try {
        if (faults != nullptr) inject(shared_tensor::simulated::parse_faults(faults));
    } catch (const std::exception& error) {  // not rethrown: the first use may be in the middle of a call
        std::fprintf(stderr, "SHARED_TENSOR_SIMULATED_FAULTS: %s; there are no faults\n", error.what());
    }
    const char* const devices = std::getenv("SHARED_TENSOR_SIMULATED_DEVICES");
    const long count = devices != nullptr ? std::strtol(devices, nullptr, 10) : 0;
    // A forked child keeps the number of its parent.
    if (count <= 0 || count > static_cast<long>(kMaxDevices) || enabled() > 0) return;
    enable(static_cast<std::size_t>(count));
}

Viability SimulatedDevice::viable() const {
    return {enabled() > 0 ? "" : "no simulated device is switched on in this process (simulated::enable)"};
}

std::vector<DeviceInfo> SimulatedDevice::devices() const {
    std::vector<DeviceInfo> list;
    for (std::size_t device = 0; device < enabled(); ++device) {
        list.push_back(
            {shared_tensor::simulated::uuid(device), "simulated device " + std::to_string(device), memory_size()});
    }
    return list;
}

std::optional<SimulatedDevice::Found> SimulatedDevice::find(const std::byte* address) const {
    return state_.with([&](const State& state) -> std::optional<Found> {
        auto next = state.ranges.upper_bound(const_cast<std::byte*>(address));  // NOLINT(*-const-cast): a key
        if (next == state.ranges.begin()) return std::nullopt;
        --next;
        if (!std::less<>()(address, next->first + next->second.bytes)) return std::nullopt;
        return Found{next->first, next->second};
    });
}

bool SimulatedDevice::holds(const TensorRef& tensor) const noexcept {
    try {
        if (ranges_.load() == 0 || !tensor.defined() || tensor.device().kind != Device::Kind::cpu) return false;
        return find(tensor.data()).has_value();
    } catch (...) {  // out of memory
        return false;
    }
}

std::size_t SimulatedDevice::index_of(const TensorRef& tensor) const {
    const auto found = find(tensor.data());
    if (!found) throw DeviceRejected("the tensor lies on no simulated device");
    return found->range.device;
}

DevicePlace SimulatedDevice::place(const TensorRef& tensor) const {
    const auto* first = tensor.data();
    const auto found = find(first);
    if (!found) throw DeviceRejected("the tensor lies on no simulated device");
    DevicePlace place;
    place.device = found->range.device;
    place.base = found->base;
    place.offset = static_cast<std::uint64_t>(first - found->base);
    place.block_bytes = found->range.bytes;
    place.generation = found->range.generation;
    if (faults_.with([](const Faults& faults) { return faults.reject_export; }))
        place.rejection = "its allocation is not capable of IPC (a fault that was asked for)";
    return place;
}

IpcBytes SimulatedDevice::export_block(const DevicePlace& place) const {
    const auto found = find(place.base);
    const auto own = found ? found->range.own.lock() : nullptr;
    if (own == nullptr) throw DeviceRejected("memory of another process cannot be exported once more");
    return own->handle();
}

IpcDevice::Opened SimulatedDevice::open(std::size_t device, const IpcBytes& handle, std::uint64_t generation) const {
    const Faults faults = faults_.with([](const Faults& held) { return held; });
    if (faults.crash_at_open) ::kill(::getpid(), SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(faults.slow_open_ms));
    try {
        if (faults.reject_open) throw DeviceRejected("the device opens nothing (a fault that was asked for)");
        OpenedBlock block(device, handle, generation);
        std::byte* base = block.data();
        const Opened opened{base, block.bytes()};
        const bool twice = state_.with([&](State& state) {
            const bool known = std::any_of(state.opened.begin(), state.opened.end(), [&](const auto& one) {
                return state.ranges.find(one.first)->second.handle == handle;
            });
            state.counts.opened_twice += known ? 1 : 0;
            if (known) return true;
            state.ranges.emplace(base, Range{opened.bytes, device, {}, generation, handle});
            state.opened.emplace(base, std::move(block));
            ++state.counts.opened;
            return false;
        });
        if (twice) throw DeviceRejected("this handle is open in this process already");
        ++ranges_;
        return opened;
    } catch (const DeviceRejected&) {
        state_.with([](State& state) { ++state.counts.rejected; });
        throw;
    }
}

void SimulatedDevice::close(std::size_t, std::byte* base) const noexcept {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(faults_.with([](const Faults& faults) { return faults.slow_close_ms; })));
    auto closed = state_.with([&](State& state) {
        state.ranges.erase(base);
        auto node = state.opened.extract(base);
        ++(node.empty() ? state.counts.closed_twice : state.counts.closed);
        return node;
    });
    if (!closed.empty()) --ranges_;
}

std::shared_ptr<OwnBlock> SimulatedDevice::allocate(std::size_t device, std::size_t bytes) const {
    std::shared_ptr<OwnBlock> block(new OwnBlock(device, std::max<std::size_t>(bytes, 1)), [this](OwnBlock* done) {
        if (process_.is_here()) free(done);
    });
    state_.with([&](State& state) {
        state.ranges.emplace(block->data(), Range{block->bytes(), device, block, block->generation(), {}});
        ++state.counts.allocations;
        state.counts.bytes += block->bytes();
    });
    ++ranges_;
    return block;
}

void SimulatedDevice::free(OwnBlock* block) const {
    const std::size_t openers = block->openers();
    state_.with([&](State& state) {
        state.ranges.erase(block->data());
        --state.counts.allocations;
        state.counts.bytes -= block->bytes();
        state.counts.freed_while_open += openers;
    });
    --ranges_;
    delete block;
}

Background& SimulatedDevice::stream(std::size_t device) const {
    return streams_.with([&](auto& streams) -> Background& {
        if (streams.at(device) == nullptr) streams[device] = std::make_unique<Background>("st-simulated");
        return *streams[device];
    });
}

void SimulatedDevice::launch(std::size_t device, std::function<void()> work) const {
    stream(device).post(std::move(work));
}

void SimulatedDevice::synchronize(std::size_t device) const {
    Background* used = streams_.with([&](auto& streams) { return streams.at(device).get(); });
    if (used != nullptr) used->flush();
}

std::unique_ptr<DeviceEvent> SimulatedDevice::record(std::size_t device) const {
    const bool rejected = faults_.with([](const Faults& faults) { return faults.reject_events; });
    auto event = rejected ? nullptr : events_.take(device);
    if (event == nullptr) {
        synchronize(device);
        return nullptr;
    }
    auto complete = event->completion(event->record());
    Background* used = streams_.with([&](auto& streams) { return streams.at(device).get(); });
    if (used != nullptr) {
        used->post(std::move(complete));
    } else {
        complete();
    }
    return event;
}

/// finish() waits for work on the stream, which may read the memory. Operators are done when they return.
class SimulatedDevice::Use final : public DeviceUse {
public:
    Use(const SimulatedDevice& kind, std::size_t device) : kind_(&kind), device_(device) {}
    void end() noexcept override {}
    void finish() noexcept override { kind_->synchronize(device_); }

private:
    const SimulatedDevice* kind_;
    const std::size_t device_;
};

std::unique_ptr<DeviceUse> SimulatedDevice::use(std::size_t device, const IpcBytes* event) const {
    if (event != nullptr && is_own(from_bytes(*event, Handle::Kind::event))) {
        synchronize(device);
    } else if (event != nullptr) {
        wait_for_event(*event);
    }
    return std::make_unique<Use>(*this, device);
}

TensorRef SimulatedDevice::view(std::size_t, std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                                ShapeView shape, ShapeView strides) const {
    return tensor::view_of(data, std::move(owner), dtype, shape, strides);
}

TensorRef SimulatedDevice::empty(std::size_t device, DType dtype, ShapeView shape) const {
    const auto extent = extent_of(shape, {}, size_of(dtype));
    if (!extent) throw std::bad_alloc();
    auto block = allocate(device, static_cast<std::size_t>(extent->bytes));
    std::byte* data = block->data();
    return tensor::view_of(data, std::move(block), dtype, shape, {});
}

TensorRef SimulatedDevice::copy(const TensorRef& tensor) const {
    const auto found = find(tensor.data());
    TensorRef made = empty(found ? found->range.device : 0, tensor.dtype(), tensor.shape());
    copy_elements(tensor, made.mutable_data());
    return made;
}

std::shared_ptr<std::byte> SimulatedDevice::staging(std::size_t bytes) const {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
}

/// A read by the device's thread, after all work given before.
class SimulatedDevice::Read final : public DeviceRead {
public:
    Read(Background& stream, const TensorRef& tensor, std::byte* out) {
        stream.post([done = std::move(done_), tensor = TensorRef(tensor), out]() mutable {
            gather(tensor.data(), tensor.shape(), tensor.strides(), size_of(tensor.dtype()), out);
            tensor = {};  // before wait() returns, because a test may count allocations then
            done->set_value();
        });
    }
    Read(const Read&) = delete;
    Read& operator=(const Read&) = delete;
    ~Read() override { is_done_.wait(); }
    void wait() override { is_done_.wait(); }

private:
    std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
    const std::future<void> is_done_ = done_->get_future();
};

std::unique_ptr<DeviceRead> SimulatedDevice::start_read(const TensorRef& tensor, std::byte* out) const {
    return std::make_unique<Read>(stream(index_of(tensor)), tensor, out);
}

Statistics SimulatedDevice::statistics() const {
    Statistics counts = state_.with([](const State& state) {
        Statistics held = state.counts;
        held.open = state.opened.size();
        return held;
    });
    counts.events = events_.in_use();
    return counts;
}

}  // namespace shared_tensor::tensor::simulated
