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
        auto next = state.blocks.upper_bound(address);
        if (next == state.blocks.begin()) return std::nullopt;
        const Block& block = *(--next)->second;
        if (!std::less<>()(address, block.data() + block.size())) return std::nullopt;
        const auto offset = static_cast<std::uint64_t>(address - block.data());
        return Found{
            {block.device(), block.data(), offset, block.size(), block.generation()}, block.is_own(), block.handle()};
    });
}

SimulatedDevice::Found SimulatedDevice::find_or_throw(const TensorRef& tensor) const {
    if (auto found = find(tensor.data())) return *std::move(found);
    throw DeviceRejected("the tensor lies on no simulated device");
}

bool SimulatedDevice::holds(const TensorRef& tensor) const noexcept {
    try {
        if (blocks_.load() == 0 || !tensor.defined() || tensor.device().kind != Device::Kind::cpu) return false;
        return find(tensor.data()).has_value();
    } catch (...) {  // out of memory
        return false;
    }
}

std::size_t SimulatedDevice::index_of(const TensorRef& tensor) const { return find_or_throw(tensor).place.device; }

DevicePlace SimulatedDevice::place(const TensorRef& tensor) const {
    DevicePlace place = find_or_throw(tensor).place;
    if (faults_.with([](const Faults& faults) { return faults.reject_export; }))
        place.rejection = "its allocation is not capable of IPC (a fault that was asked for)";
    return place;
}

IpcBytes SimulatedDevice::export_block(const DevicePlace& place) const {
    const auto found = find(place.base);
    if (!found || !found->is_own) throw DeviceRejected("memory of another process cannot be exported once more");
    return found->handle;
}

void SimulatedDevice::add(State& state, const Block& block) const {
    state.blocks.emplace(block.data(), &block);
    blocks_.store(state.blocks.size());
}

IpcDevice::Opened SimulatedDevice::open(std::size_t device, const IpcBytes& handle, std::uint64_t generation) const {
    const Faults faults = faults_.with([](const Faults& held) { return held; });
    if (faults.crash_at_open) ::kill(::getpid(), SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(faults.slow_open_ms));
    try {
        if (faults.reject_open) throw DeviceRejected("the device opens nothing (a fault that was asked for)");
        auto block = std::make_unique<const Block>(device, handle, generation);
        const Opened opened{block->data(), block->size()};
        const bool twice = state_.with([&](State& state) {
            if (std::any_of(state.blocks.begin(), state.blocks.end(),
                            [&](const auto& one) { return !one.second->is_own() && one.second->handle() == handle; })) {
                ++state.counts.opened_twice;
                return true;
            }
            add(state, *block);
            static_cast<void>(block.release());  // owned by `blocks` until close()
            ++state.counts.open;
            ++state.counts.opened;
            return false;
        });
        if (twice) throw DeviceRejected("this handle is open in this process already");
        return opened;
    } catch (const DeviceRejected&) {
        state_.with([](State& state) { ++state.counts.rejected; });
        throw;
    }
}

void SimulatedDevice::close(std::size_t, std::byte* base) const noexcept {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(faults_.with([](const Faults& faults) { return faults.slow_close_ms; })));
    std::unique_ptr<const Block> closed;
    state_.with([&](State& state) {
        const auto block = state.blocks.extract(base);
        ++(block.empty() ? state.counts.closed_twice : state.counts.closed);
        if (block.empty()) return;
        closed.reset(block.mapped());
        --state.counts.open;
        blocks_.store(state.blocks.size());
    });
}

void SimulatedDevice::free(Block* block) const {
    const std::size_t openers = block->openers();
    state_.with([&](State& state) {
        state.blocks.erase(block->data());
        blocks_.store(state.blocks.size());
        --state.counts.allocations;
        state.counts.bytes -= block->size();
        state.counts.freed_while_open += openers;
    });
    delete block;
}

Background* SimulatedDevice::stream(std::size_t device) const {
    return streams_.with([&](auto& streams) { return streams.at(device).get(); });
}

void SimulatedDevice::launch(std::size_t device, std::function<void()> work) const {
    streams_.with([&](auto& streams) {
        if (streams.at(device) == nullptr) streams[device] = std::make_unique<Background>("st-simulated");
        streams[device]->post(std::move(work));
    });
}

void SimulatedDevice::synchronize(std::size_t device) const {
    if (Background* const used = stream(device)) used->flush();
}

DeviceEvent SimulatedDevice::record(std::size_t device) const {
    const bool rejected = faults_.with([](const Faults& faults) { return faults.reject_events; });
    auto [event, complete] = rejected ? EventPool::Taken() : events_.take(device);
    if (event == nullptr) {
        synchronize(device);
    } else if (Background* const used = stream(device)) {
        used->post(std::move(complete));
    } else {
        complete();
    }
    return std::move(event);
}

std::unique_ptr<DeviceUse> SimulatedDevice::use(std::size_t device, const IpcBytes* event) const {
    /// finish() waits for work on the stream, which may read the memory. Operators are done when they return.
    struct Use final : DeviceUse {
        Use(const SimulatedDevice& the_kind, std::size_t the_device) : kind(the_kind), device(the_device) {}
        void end() noexcept override {}
        void finish() noexcept override { kind.synchronize(device); }
        const SimulatedDevice& kind;
        const std::size_t device;
    };
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
    const auto bytes = std::max<std::size_t>(static_cast<std::size_t>(extent->bytes), 1);
    std::shared_ptr<Block> block(new Block(device, bytes), [this](Block* done) {
        if (process_.is_here()) free(done);
    });
    state_.with([&](State& state) {
        add(state, *block);
        ++state.counts.allocations;
        state.counts.bytes += block->size();
    });
    std::byte* data = block->data();
    return tensor::view_of(data, std::move(block), dtype, shape, {});
}

TensorRef SimulatedDevice::copy(const TensorRef& tensor) const {
    const auto found = find(tensor.data());
    TensorRef made = empty(found ? found->place.device : 0, tensor.dtype(), tensor.shape());
    copy_elements(tensor, made.mutable_data());
    return made;
}

std::unique_ptr<DeviceRead> SimulatedDevice::start_read(const TensorRef& tensor, std::byte* out) const {
    struct Read final : DeviceRead {
        explicit Read(std::future<void> the_end) : end(std::move(the_end)) {}
        ~Read() override { end.wait(); }
        void wait() override { end.wait(); }
        const std::future<void> end;
    };
    const std::size_t device = index_of(tensor);
    auto done = std::make_shared<std::promise<void>>();
    auto read = std::make_unique<Read>(done->get_future());
    launch(device, [done = std::move(done), tensor = TensorRef(tensor), out]() mutable {
        gather(tensor.data(), tensor.shape(), tensor.strides(), size_of(tensor.dtype()), out);
        tensor = {};  // before wait() returns, because a test may count allocations then
        done->set_value();
    });
    return read;
}

Statistics SimulatedDevice::statistics() const {
    Statistics counts = state_.with([](const State& state) { return state.counts; });
    counts.events = events_.in_use();
    return counts;
}

}  // namespace shared_tensor::tensor::simulated
