#pragma once

#include <cstdint>
#include <memory>

#include "support/simulated/handle.hpp"
#include "tensor/devices/ipc_device.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::tensor::simulated {

/// The events of this process, in a page that others may map. Recorded and completed are counted, so that an event
/// can be recorded again.
class EventPool {
public:
    static constexpr std::size_t kEvents = 1000;

    class Event;
    /// Null when none is left.
    std::unique_ptr<Event> take(std::size_t device);
    std::size_t in_use() const;

    struct Page;  // owned by the pool for ever: the events of others point into it

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

    /// Something is to be done before it: the returned count goes to complete().
    std::uint32_t record() const;
    /// Safe after the event's end.
    std::function<void()> completion(std::uint32_t count) const;

private:
    EventPool* const pool_;
    const std::shared_ptr<Page> page_;
    const std::uint32_t slot_;
    IpcBytes bytes_;
};

/// Blocks until all is done that was recorded of another process's event. Throws DeviceRefused, also when that
/// process ends or takes more than half a minute.
void wait_for_event(const IpcBytes& bytes);

}  // namespace shared_tensor::tensor::simulated
