#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "base/concurrency/guarded.hpp"
#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::test {

/// A device whose driver is a few counters: opens any handle, and says what would be wrong.
class FakeDevice final : public tensor::IpcDevice {
public:
    struct State {
        std::set<tensor::IpcBytes> open;
        std::map<std::byte*, tensor::IpcBytes> bases;
        std::uintptr_t next = 0x1000000;
        int opened = 0, closed = 0, opened_twice = 0, finished = 0;
    };
    mutable Guarded<State> state;
    std::function<void()> before_open = [] {};
    std::atomic<bool> rejects{false};

    static constexpr std::uint64_t kBytes = 4096;

    tensor::Viability viable() const override { return {}; }
    std::vector<tensor::DeviceInfo> devices() const override { return {{"FAKE-0", "fake", 1 << 20}}; }
    bool holds(const TensorRef&) const noexcept override { return false; }
    std::size_t index_of(const TensorRef&) const override { return 0; }
    tensor::DevicePlace place(const TensorRef&) const override { return {}; }
    tensor::IpcBytes export_block(const tensor::DevicePlace&) const override { return {}; }
    Opened open(std::size_t, const tensor::IpcBytes& handle, std::uint64_t) const override {
        before_open();
        if (rejects) throw tensor::DeviceRejected("no");
        return state.with([&](State& held) {
            held.opened_twice += held.open.insert(handle).second ? 0 : 1;
            ++held.opened;
            auto* base = reinterpret_cast<std::byte*>(held.next += 2 * kBytes);
            held.bases.emplace(base, handle);
            return Opened{base, kBytes};
        });
    }
    void close(std::size_t, std::byte* base) const noexcept override {
        state.with([&](State& held) {
            held.open.erase(held.bases.at(base));
            ++held.closed;
        });
    }
    std::unique_ptr<tensor::DeviceEvent> record(std::size_t) const override { return nullptr; }
    std::unique_ptr<tensor::DeviceUse> use(std::size_t, const tensor::IpcBytes*) const override {
        struct Use final : tensor::DeviceUse {
            explicit Use(const FakeDevice& the_device) : device(&the_device) {}
            void end() noexcept override {}
            void finish() noexcept override {
                device->state.with([](State& held) { ++held.finished; });
            }
            const FakeDevice* device;
        };
        return std::make_unique<Use>(*this);
    }
    TensorRef view(std::size_t, std::byte*, std::shared_ptr<const void>, tensor::DType, tensor::ShapeView,
                   tensor::ShapeView) const override {
        return {};
    }
    TensorRef empty(std::size_t, tensor::DType, tensor::ShapeView) const override { return {}; }
    TensorRef copy(const TensorRef& tensor) const override { return tensor; }
    std::shared_ptr<std::byte> staging(std::size_t) const override { return {}; }
    std::unique_ptr<tensor::DeviceRead> start_read(const TensorRef&, std::byte*) const override { return {}; }
};

}  // namespace shared_tensor::test
