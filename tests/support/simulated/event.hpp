#pragma once

#include <cstdint>
#include <memory>

#include "base/concurrency/guarded.hpp"
#include "support/simulated/handle.hpp"
#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor::simulated {

/// The events of this process, in memory that other processes can map. Each event counts how often it was recorded and
/// completed, so that it can be recorded again.
class EventPool {
public:
    static constexpr std::size_t kEvents = 1000;

    class Event;
    /// Returns null if no event is left.
    std::unique_ptr<Event> take(std::size_t device);
    std::size_t in_use() const;

    struct Page;  // the pool never frees it, because handles in other processes refer to it

private:
    struct State {
        std::shared_ptr<Page> page;
        std::vector<std::uint32_t> free;
        std::size_t in_use = 0;
    };
    Guarded<State> state_;
};

class EventPool::Event final : public DeviceEvent {
public:
    Event(EventPool& pool, std::shared_ptr<Page> page, std::uint32_t slot, std::size_t device);
    ~Event() override;
    const IpcBytes& bytes() const override { return bytes_; }

    /// Records the event after work that is not done yet. Returns the count for completion().
    std::uint32_t record() const;
    /// Returns a function that completes the event up to `count`. It may be called after the event's end.
    std::function<void()> completion(std::uint32_t count) const;

private:
    EventPool* const pool_;
    const std::shared_ptr<Page> page_;
    const std::uint32_t slot_;
    IpcBytes bytes_;
};

/// Blocks until all recorded work of another process's event is completed. Throws DeviceRejected, also if that process
/// ends or takes more than 30 s.
void wait_for_event(const IpcBytes& bytes);

}  // namespace shared_tensor::tensor::simulated
