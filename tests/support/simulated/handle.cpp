#include "support/simulated/handle.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <system_error>

#include "base/bytes/digest.hpp"
#include "local/segments/mapping.hpp"

namespace shared_tensor::tensor::simulated {

namespace {

constexpr std::uint32_t kMagic = 0x4d495354;  // "TSIM"
constexpr std::size_t kSummed = 56;

struct Layout {
    std::uint32_t magic, kind, device, slot, pid, fd;
    std::uint64_t start, inode, nonce, reserved, sum;
};
static_assert(sizeof(Layout) == sizeof(IpcBytes) && offsetof(Layout, sum) == kSummed);

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::uint64_t sum_of(const Layout& layout) {
    static const std::string kBoot = text_of("/proc/sys/kernel/random/boot_id");
    std::string summed(reinterpret_cast<const char*>(&layout), kSummed);
    const Sha256 digest = sha256_of(std::as_bytes(std::span(summed.append(kBoot))));
    std::uint64_t sum = 0;
    std::memcpy(&sum, digest.data(), sizeof sum);
    return sum;
}

/// Returns the 22nd field of /proc/PID/stat; 0 if there is no such process. Fields are counted from the end of the
/// process name, because the name may contain spaces and parentheses.
std::uint64_t start_of(std::uint32_t pid) {
    const std::string text = text_of("/proc/" + std::to_string(pid) + "/stat");
    auto at = text.rfind(')');
    for (int word = 2; word < 22 && at != std::string::npos; ++word)
        at = text.find(' ', at + 1);
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

std::uint64_t own_start() {
    static const std::uint64_t kStart = start_of(static_cast<std::uint32_t>(::getpid()));
    return kStart;
}

}  // namespace

IpcBytes to_bytes(const Handle& handle) {
    Layout layout{kMagic,
                  static_cast<std::uint32_t>(handle.kind),
                  handle.device,
                  handle.slot,
                  handle.pid,
                  handle.fd,
                  handle.start,
                  handle.inode,
                  handle.nonce,
                  0,
                  0};
    layout.sum = sum_of(layout);
    IpcBytes bytes;
    std::memcpy(bytes.data(), &layout, sizeof layout);
    return bytes;
}

Handle from_bytes(const IpcBytes& bytes, Handle::Kind kind) {
    Layout layout{};
    std::memcpy(&layout, bytes.data(), sizeof layout);
    if (layout.magic != kMagic || layout.sum != sum_of(layout))
        throw DeviceRejected("these bytes are no handle of a simulated device of this machine");
    if (layout.kind != static_cast<std::uint32_t>(kind))
        throw DeviceRejected(kind == Handle::Kind::block ? "this is the handle of an event"
                                                         : "this is no event's handle");
    return {kind, layout.device, layout.slot, layout.pid, layout.fd, layout.start, layout.inode, layout.nonce};
}

Handle own_handle(Handle::Kind kind, int fd, std::uint64_t nonce) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) throw DeviceRejected("the memory cannot be looked at");
    Handle handle;
    handle.kind = kind;
    handle.pid = static_cast<std::uint32_t>(::getpid());
    handle.fd = static_cast<std::uint32_t>(fd);
    handle.start = own_start();
    handle.inode = status.st_ino;
    handle.nonce = nonce;
    return handle;
}

bool is_own(const Handle& handle) {
    return handle.pid == static_cast<std::uint32_t>(::getpid()) && handle.start == own_start();
}

bool is_alive(const Handle& handle) { return start_of(handle.pid) == handle.start; }

Memory open_memory(const Handle& handle) {
    if (!is_alive(handle)) throw DeviceRejected("the process that made this handle is gone");
    const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    struct stat status {};
    // Check the file before opening it: to open a pipe or a terminal may have side effects.
    if (::stat(path.c_str(), &status) != 0 || status.st_ino != handle.inode || !S_ISREG(status.st_mode))
        throw DeviceRejected("the memory behind this handle was freed, or belongs to another user");
    if (status.st_uid != ::geteuid()) throw DeviceRejected("the memory behind this handle is another user's");
    Memory memory{UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)), 0};
    if (!memory.fd || ::fstat(memory.fd.get(), &status) != 0 || status.st_ino != handle.inode)
        throw DeviceRejected("the memory behind this handle was freed");
    const int seals = ::fcntl(memory.fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw DeviceRejected("the memory behind this handle could shrink");
    memory.bytes = static_cast<std::size_t>(status.st_size);
    if (!local::is_allocated(memory.fd, memory.bytes))
        throw DeviceRejected("pages of the memory behind this handle could be missing");
    return memory;
}

UniqueFd make_memory(const char* name, std::size_t bytes) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) throw std::bad_alloc();
    return fd;
}

std::byte* map_memory(const UniqueFd& fd, std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(data);
}

std::uint64_t random_nonce() {
    std::uint64_t nonce = 0;
    while (::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) {
    }
    return nonce;
}

}  // namespace shared_tensor::tensor::simulated
