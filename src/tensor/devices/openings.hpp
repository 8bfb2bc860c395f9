#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "tensor/devices/ipc_device.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::tensor {

struct OpeningLimits {
    std::chrono::milliseconds linger{500};       ///< an opening that nothing reads is kept for so long
    std::size_t max_idle = 32;                   ///< of these; those unused for longest go first
    std::chrono::milliseconds patience{60'000};  ///< for another thread that opens or closes the same block
};

struct OpeningStats {
    std::size_t open = 0;  ///< blocks of other processes, idle ones and those on their way included
    std::size_t idle = 0;
    std::uint64_t opened = 0, closed = 0, borrowed = 0;
};

/// The blocks of other processes that this one has open, each once and counted, whoever reads it.
///
/// An entry is opening, open or closing. The lock guards these states only: opening blocks the thread that asked, and
/// others that want the same block wait for it; the end of uses and closing are for a thread of its own. A block whose
/// last tensor is gone stays open for a moment, because opening is dear: the lease of that tensor is held meanwhile,
/// for memory may not be freed while somebody has it open.
///
/// Thread safety: all methods from any thread but the destructor.
class Openings {
public:
    /// `device` must outlive it.
    explicit Openings(const IpcDevice& device, OpeningLimits limits = {});
    ~Openings();  ///< closes what nothing reads; the rest is left to the end of the process

    struct Block {
        std::size_t device = 0;
        IpcBytes handle{};
        std::uint64_t generation = 0;
        std::uint64_t owner = 0;  ///< whose block it is, for forget()

        bool operator<(const Block& other) const {
            return std::pair(device, handle) < std::pair(other.device, other.handle);
        }
    };
    struct Borrowed {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
        std::shared_ptr<const void> owner;
    };
    /// `use` is the reader's; `done` is called once, in the background, when the block may be freed as far as this
    /// reader goes. When it throws nothing is ever called. Blocks while the block is being opened. Throws InvalidValue
    /// (path "cuda_ipc.handle" or "cuda_ipc.generation").
    Borrowed borrow(const Block& block, std::unique_ptr<DeviceUse> use, std::function<void()> done);

    /// An address inside a block that is open here: it belongs to another process.
    bool contains(const std::byte* address) const;
    /// That owner is gone, or wants its memory: its blocks are closed as soon as nothing reads them.
    void forget(std::uint64_t owner);
    OpeningStats stats() const;

private:
    enum class Phase { opening, open, closing };
    struct Entry {
        Phase phase = Phase::opening;
        std::uint64_t generation = 0, owner = 0;
        IpcDevice::Opened opened{};
        std::size_t uses = 0;
        bool at_once = false;  ///< not to be kept when idle
        SteadyTime idle_since{};
        std::function<void()> done{};  ///< of the last reader, while idle
    };
    struct Ended {
        Block block;
        std::unique_ptr<DeviceUse> use;
        std::function<void()> done;
    };
    struct State {
        std::map<Block, Entry> entries;
        std::deque<Ended> ended;
        std::deque<std::function<void()>> done;  ///< to be called
        std::uint64_t opened = 0, closed = 0, borrowed = 0;
        bool closing = false;
    };
    class Reader;

    IpcDevice::Opened enter(const Block& block);
    void ended(Ended one) noexcept;
    void serve();
    bool serve_once();
    void finish(Ended one);
    static std::map<Block, Entry>::iterator next_to_close(State& state, const OpeningLimits& limits, SteadyTime now);

    const IpcDevice* const device_;
    const OpeningLimits limits_;
    Guarded<State> state_;
    std::jthread thread_;
};

}  // namespace shared_tensor::tensor
