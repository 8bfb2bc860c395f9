#include "support/simulated/ipc.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <fstream>
#include <iterator>
#include <new>
#include <numeric>
#include <string>
#include <thread>

#include "base/bytes/digest.hpp"
#include "base/concurrency/clock.hpp"
#include "base/system/host.hpp"
#include "local/segments/segment.hpp"

namespace shared_tensor::tensor::simulated {

namespace {

constexpr std::uint32_t kMagic = 0x4d495354;  // "TSIM"
static_assert(sizeof(Handle) == sizeof(IpcBytes) && std::has_unique_object_representations_v<Handle>);

std::uint64_t sum_of(Handle handle) {
    handle.sum = 0;
    std::string summed(reinterpret_cast<const char*>(&handle), sizeof handle);
    const Sha256::Value digest = Sha256::of(std::as_bytes(std::span(summed.append(boot_id()))));
    std::uint64_t sum = 0;
    std::memcpy(&sum, digest.data(), sizeof sum);
    return sum;
}

/// Returns the 22nd field of /proc/PID/stat; 0 if there is no such process. Fields are counted from the end of the
/// process name, because the name may contain spaces and parentheses.
std::uint64_t start_of(std::uint32_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto at = text.rfind(')');
    for (int word = 2; word < 22 && at != std::string::npos; ++word)
        at = text.find(' ', at + 1);
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

std::uint32_t own_pid() { return static_cast<std::uint32_t>(::getpid()); }

std::uint64_t own_start() {
    static const std::uint64_t kStart = start_of(own_pid());
    return kStart;
}

bool is_alive(const Handle& handle) { return start_of(handle.pid) == handle.start; }

std::uint64_t random_nonce() {
    std::uint64_t nonce = 0;
    while (::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) {
    }
    return nonce;
}

}  // namespace

Handle from_bytes(const IpcBytes& bytes, Handle::Kind kind) {
    const auto handle = std::bit_cast<Handle>(bytes);
    if (handle.magic != kMagic || handle.sum != sum_of(handle))
        throw DeviceRejected("these bytes are no handle of a simulated device of this machine");
    if (handle.kind != kind)
        throw DeviceRejected(kind == Handle::Kind::block ? "this is the handle of an event"
                                                         : "this is no event's handle");
    return handle;
}

bool is_own(const Handle& handle) { return handle.pid == own_pid() && handle.start == own_start(); }

SharedMemory::SharedMemory(std::size_t bytes)
    : fd_(::memfd_create("shared-tensor-simulated", MFD_CLOEXEC | MFD_ALLOW_SEALING)), size_(bytes) {
    if (!fd_ || ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
    if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) throw std::bad_alloc();
    map();
}

SharedMemory::SharedMemory(const Handle& handle) {
    if (!is_alive(handle)) throw DeviceRejected("the process that made this handle is gone");
    const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    struct stat status {};
    // Check the file before opening it: to open a pipe or a terminal may have side effects.
    if (::stat(path.c_str(), &status) != 0 || status.st_ino != handle.inode || !S_ISREG(status.st_mode))
        throw DeviceRejected("the memory behind this handle was freed, or belongs to another user");
    if (status.st_uid != ::geteuid()) throw DeviceRejected("the memory behind this handle is another user's");
    fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd_ || ::fstat(fd_.get(), &status) != 0 || status.st_ino != handle.inode)
        throw DeviceRejected("the memory behind this handle was freed");
    const int seals = ::fcntl(fd_.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw DeviceRejected("the memory behind this handle could shrink");
    size_ = static_cast<std::size_t>(status.st_size);
    if (!local::is_allocated(fd_, size_))
        throw DeviceRejected("pages of the memory behind this handle could be missing");
    map();
}

void SharedMemory::map() {
    void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(data);
}

SharedMemory::~SharedMemory() { ::munmap(data_, size_); }

IpcBytes SharedMemory::handle(Handle::Kind kind, std::size_t device, std::uint64_t nonce, std::uint32_t slot) const {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw DeviceRejected("the memory cannot be looked at");
    Handle handle{kMagic,
                  kind,
                  static_cast<std::uint32_t>(device),
                  slot,
                  own_pid(),
                  static_cast<std::uint32_t>(fd_.get()),
                  own_start(),
                  status.st_ino,
                  nonce,
                  0,
                  0};
    handle.sum = sum_of(handle);
    return std::bit_cast<IpcBytes>(handle);
}

/// In memory that other processes write to.
struct Block::Header {
    std::uint64_t nonce, generation, bytes;
    std::atomic<std::uint32_t> freed;
    std::array<std::atomic<std::int32_t>, 256> openers;  ///< pids of the processes that have it open; 0: free entry
};

namespace {

std::uint64_t next_generation() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

Handle handle_of_block(const IpcBytes& bytes, std::size_t device) {
    const Handle handle = from_bytes(bytes, Handle::Kind::block);
    if (is_own(handle)) throw DeviceRejected("a handle cannot be opened in the process that made it");
    if (handle.device != device) throw DeviceRejected("this handle belongs to another device");
    return handle;
}

}  // namespace

Block::Header& Block::header() const { return *std::launder(reinterpret_cast<Header*>(memory_.data())); }

Block::Block(std::size_t device, std::size_t bytes)
    : memory_(bytes <= SIZE_MAX - kHeaderBytes ? bytes + kHeaderBytes : throw std::bad_alloc()),
      is_own_(true),
      device_(device),
      generation_(next_generation()) {
    static_assert(sizeof(Header) <= kHeaderBytes && std::atomic<std::int32_t>::is_always_lock_free);
    auto* made = new (memory_.data()) Header{};
    made->nonce = random_nonce();
    made->generation = generation_;
    made->bytes = bytes;
    handle_ = memory_.handle(Handle::Kind::block, device, made->nonce);
}

Block::Block(std::size_t device, const IpcBytes& bytes, std::uint64_t generation)
    : memory_(handle_of_block(bytes, device)),
      is_own_(false),
      device_(device),
      generation_(generation),
      handle_(bytes) {
    if (memory_.size() < kHeaderBytes) throw DeviceRejected("the memory behind this handle is no block");
    const Handle handle = from_bytes(bytes, Handle::Kind::block);
    if (header().nonce != handle.nonce || header().freed.load() != 0 || header().bytes != size() ||
        header().generation != generation)
        throw DeviceRejected("the block behind this handle was freed, or is of another generation");
    auto& openers = header().openers;
    for (std::int32_t nobody = 0; slot_ < openers.size(); ++slot_, nobody = 0) {
        if (openers[slot_].compare_exchange_strong(nobody, ::getpid())) return;
    }
    throw DeviceRejected("too many processes have this block open");
}

Block::~Block() {
    if (is_own_) {
        header().freed.store(1);
    } else {
        header().openers[slot_].store(0);
    }
}

std::size_t Block::openers() const {
    std::size_t count = 0;
    for (const auto& opener : header().openers) {
        const std::int32_t pid = opener.load();
        count += pid > 0 && pid != ::getpid() && ::kill(pid, 0) == 0 ? 1 : 0;
    }
    return count;
}

namespace {

/// The state of an event, in memory that other processes map: its nonce, an even number, plus kDone when the work
/// before the event is done; 0: there is no event.
using Slot = std::atomic<std::uint64_t>;
using Slots = std::array<Slot, EventPool::kEvents>;
constexpr std::uint64_t kDone = 1;

Slot& slot_in(const SharedMemory& page, std::uint32_t slot) {
    return std::launder(reinterpret_cast<Slots*>(page.data()))->at(slot);
}

}  // namespace

EventPool::Taken EventPool::take(std::size_t device) {
    std::shared_ptr<const SharedMemory> page;
    std::uint32_t slot = 0;
    state_.with([&](State& state) {
        if (state.page == nullptr) {
            state.page = std::make_shared<const SharedMemory>(sizeof(Slots));
            new (state.page->data()) Slots{};
            state.free.resize(kEvents);
            std::iota(state.free.begin(), state.free.end(), 0U);
        }
        if (state.free.empty()) return;
        page = state.page;
        slot = state.free.back();
        state.free.pop_back();
    });
    if (page == nullptr) return {};
    const std::uint64_t nonce = random_nonce() & ~kDone;
    DeviceEvent event(new IpcBytes(page->handle(Handle::Kind::event, device, nonce, slot)),
                      [this, page, slot](const IpcBytes* bytes) {
                          delete bytes;
                          slot_in(*page, slot).store(0);
                          state_.with([&](State& state) { state.free.push_back(slot); });
                      });
    slot_in(*page, slot).store(nonce);
    return {
        std::move(event), [page, slot, before = nonce]() mutable {
            slot_in(*page, slot).compare_exchange_strong(before, before | kDone);  // unless another event has it now
        }};
}

std::size_t EventPool::in_use() const {
    return state_.with([](const State& state) { return state.page == nullptr ? 0 : kEvents - state.free.size(); });
}

void wait_for_event(const IpcBytes& bytes) {
    constexpr std::chrono::seconds kPatience{30};
    constexpr std::chrono::microseconds kLookEvery{200};
    const Handle handle = from_bytes(bytes, Handle::Kind::event);
    if (is_own(handle)) throw DeviceRejected("an event cannot be opened in the process that made it");
    const SharedMemory page(handle);
    if (page.size() != sizeof(Slots) || handle.slot >= EventPool::kEvents)
        throw DeviceRejected("the memory behind this handle holds no event");
    const Slot& slot = slot_in(page, handle.slot);
    for (const SteadyTime deadline = real_clock().now() + kPatience;;) {
        const std::uint64_t state = slot.load();
        if (state == (handle.nonce | kDone)) return;
        if (state != handle.nonce) throw DeviceRejected("this event was destroyed");
        if (!is_alive(handle)) throw DeviceRejected("the process that had to finish this tensor is gone");
        if (real_clock().now() > deadline) throw DeviceRejected("the work that this tensor waits for does not end");
        std::this_thread::sleep_for(kLookEvery);
    }
}

}  // namespace shared_tensor::tensor::simulated
