#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

/// A block that a peer lent cannot be opened in this process; what() has the driver's reason. Containers, namespaces
/// and settings of the driver can forbid it although both processes can use the device.
class CannotOpen : public InvalidValue {
public:
    using InvalidValue::InvalidValue;
};

/// The blocks of this process that other processes may open at the moment. A message from this process to itself finds
/// the memory here, because a handle cannot be opened in the process that made it.
/// Thread safety: all methods from any thread.
class Exports {
public:
    void add(const IpcBytes& handle, const DevicePlace& place);
    void remove(const IpcBytes& handle);

    struct Own {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
        std::uint64_t generation = 0;
        std::size_t count = 0;
    };
    std::optional<Own> find(const IpcBytes& handle) const;

private:
    Guarded<std::map<IpcBytes, Own>> own_;
};

struct IpcHandleCacheLimits {
    std::chrono::milliseconds linger{500};       ///< how long an idle block (no reader) stays open
    std::size_t max_idle = 32;                   ///< idle blocks; beyond that the longest idle are closed first
    std::chrono::milliseconds patience{60'000};  ///< longest wait for a thread that opens or closes the same block
};

struct IpcHandleCacheStats {
    std::size_t open = 0;  ///< blocks of other processes: in use, idle, being opened or being closed
    std::size_t idle = 0;
    std::uint64_t opened = 0, closed = 0, borrowed = 0;
};

/// The IPC handle cache: the blocks of other processes that this process has open. Each block is open once, with a
/// count of its readers.
///
/// An entry is opening, open or closing; the lock protects only these states. The thread that borrows a block opens it;
/// other threads that want the same block wait for it. A thread of the cache waits for ended uses and closes blocks.
/// Opening is expensive, so a block stays open for a while after its last reader. The lease of that reader is kept
/// until then, because memory must not be freed while a process has it open.
///
/// Thread safety: all methods from any thread, except the destructor.
class IpcHandleCache {
public:
    /// `device` must outlive this object.
    explicit IpcHandleCache(const IpcDevice& device, IpcHandleCacheLimits limits = {});
    ~IpcHandleCache();  ///< closes idle blocks; blocks with readers stay open until the process ends

    struct Block {
        std::size_t device = 0;
        IpcBytes handle{};
        std::uint64_t generation = 0;
        std::uint64_t owner = 0;  ///< of the block, for forget(): see DevicePeer::owner()

        bool operator<(const Block& other) const {
            return std::pair(device, handle) < std::pair(other.device, other.handle);
        }
    };
    struct Borrowed {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
        std::shared_ptr<const void> owner;
    };
    /// Opens a block, or counts one more reader of it, until the result's `owner` is destroyed. A block of exports() is
    /// used where it is. After that, and after the device has finished `use`, `done` is called once on the thread of
    /// the cache: this reader no longer prevents the free of the block. If borrow() throws, `done` is not called.
    /// Blocks while the block is opened. Throws InvalidValue (path "cuda_ipc.handle", "cuda_ipc.generation" or
    /// "cuda_ipc.block"); CannotOpen if the device cannot open it.
    Borrowed borrow(const Block& block, std::unique_ptr<DeviceUse> use, std::function<void()> done);

    Exports& exports() { return exports_; }
    /// Whether the address is inside an open block, so that the memory belongs to another process.
    bool contains(const std::byte* address) const;
    /// Closes the blocks of an owner as soon as they have no reader. To be called when the owner has ended.
    void forget(std::uint64_t owner);
    IpcHandleCacheStats stats() const;

private:
    enum class Phase { opening, open, closing };
    struct Entry {
        Phase phase = Phase::opening;
        IpcDevice::Opened opened{};
        std::size_t uses = 0;
        bool at_once = false;  ///< close it as soon as it is idle
        SteadyTime idle_since{};
        std::function<void()> done{};  ///< of the last reader, while the block is idle
    };
    using Entries = std::map<Block, Entry>;  ///< a key has the generation and the owner of the block that is open
    struct State {
        Entries entries;
        std::uint64_t opened = 0, closed = 0, borrowed = 0;
        bool looks_again = false, closing = false;
    };
    struct Reader;

    IpcDevice::Opened enter(const Block& block);
    IpcDevice::Opened open(const Block& block);
    void leave(const Block& block, std::function<void()> done);
    void close_due();
    std::pair<Entries::iterator, SteadyTime> next_to_close(State& state) const;

    const IpcDevice* const device_;
    const IpcHandleCacheLimits limits_;
    Exports exports_;
    Guarded<State> state_;
    Background executor_{"st-handles"};  // last: its work uses the other members
};

}  // namespace shared_tensor::tensor
