#include "local/segments/segment.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/bytes/ids.hpp"
#include "base/system/host.hpp"

namespace shared_tensor::local {

namespace {

[[noreturn]] void fail(int error, const char* what) {
    if (error == ENOMEM || error == ENOSPC) throw std::bad_alloc();
    throw std::system_error(error, std::generic_category(), what);
}

std::shared_ptr<const UniqueFd> make_memory(std::size_t bytes) {
    auto fd = std::make_shared<UniqueFd>(::memfd_create("shared_tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!*fd) fail(errno, "memfd_create");
    if (::ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0) fail(errno, "ftruncate");
    return fd;
}

}  // namespace

std::size_t page_size() {
    static const auto kSize = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return kSize;
}

SegmentFile::SegmentFile(std::size_t bytes, Sharing sharing, std::shared_ptr<const UniqueFd> descriptor)
    : id_(random_id("g-")), size_(bytes), sharing_(sharing), descriptor_(std::move(descriptor)) {}

namespace {

/// The memory as another open file. An invalid descriptor if that cannot be had.
UniqueFd open_again(const UniqueFd& memory, int mode) {
    return UniqueFd(::open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), mode | O_CLOEXEC));
}

}  // namespace

std::shared_ptr<const UniqueFd> SegmentFile::for_others() const {
    const auto open_once = [&](std::weak_ptr<const UniqueFd>& last) {
        std::shared_ptr<const UniqueFd> own = last.lock();
        if (own != nullptr) return own;
        if (UniqueFd opened = open_again(*descriptor_, O_RDONLY))
            own = std::make_shared<const UniqueFd>(std::move(opened));
        last = own;
        return own;
    };
    if (sharing_ == Sharing::read_only) {
        if (auto own = for_others_.with(open_once)) return own;
    }
    is_out_ = true;
    return descriptor_;
}

Segment::Segment(std::size_t bytes, Sharing sharing) : SegmentFile(bytes, sharing) {
    SHARED_TENSOR_CHECK(bytes > 0 && bytes % page_size() == 0, "a segment has whole pages");
    if (bytes > memory_size()) throw std::bad_alloc();  // else the kernel may kill a process to free memory
    descriptor_ = make_memory(bytes);
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_->get(), 0);
    if (mapped == MAP_FAILED) fail(errno, "mmap");
    data_ = static_cast<std::byte*>(mapped);
    try {
        own_pages(data_, bytes);
        // After our own mapping: it stays writable, and no later mapping can be.
        const int seals = sharing == Sharing::writable ? kWritableSeals : kSeals;
        if (::fcntl(descriptor_->get(), F_ADD_SEALS, seals) != 0) fail(errno, "F_ADD_SEALS");
        if (sharing == Sharing::writable) guard_.emplace(data_, size_, FaultCount::of_own_memory());
    } catch (...) {
        ::munmap(data_, size_);
        throw;
    }
}

bool Segment::seal() {
    if (sharing_ == Sharing::writable) return false;
    if (private_.exchange(true)) return is_immutable(*descriptor_);
    // Replaces our shared mapping, which would prevent the seal, at the same address: readers there find the same
    // bytes. The new mapping is made elsewhere first, so that the old one stays if there is no memory.
    void* const sealed =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_->get(), 0);
    if (sealed != MAP_FAILED && ::mremap(sealed, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) != MAP_FAILED)
        return ::fcntl(descriptor_->get(), F_ADD_SEALS, kFinalSeals) == 0;
    if (sealed != MAP_FAILED) ::munmap(sealed, size_);
    private_ = false;
    return false;
}

bool Segment::differs(std::size_t offset, std::size_t bytes) const {
    return private_ && has_written_pages(data_ + offset, bytes, best_page_table());
}

Segment::Segment(Segment&& old)
    : SegmentFile(old.size_, old.sharing_, std::move(old.descriptor_)),
      data_(std::exchange(old.data_, nullptr)),
      private_(old.private_.load()) {
    is_out_ = old.is_out_.load();
}

/// The kernel grants a write lease (fcntl(2), "Leases") on a file that nobody else has open. A file is open as long as
/// any process has a descriptor or a mapping of it. The kernel does not count the descriptor that memfd_create() made:
/// so other processes get one of for_others(), and the lease needs one more.
bool Segment::may_be_read() const {
    if (is_out_) return true;
    const UniqueFd own = open_again(*descriptor_, O_RDWR);
    // Who opens the file while there is a lease makes the kernel send a signal: one that does nothing.
    return !own || ::fcntl(own.get(), F_SETSIG, SIGURG) != 0 || ::fcntl(own.get(), F_SETLEASE, F_WRLCK) != 0;
}

Segment::~Segment() {
    guard_.reset();  // first: a new mapping may reuse the addresses
    if (data_ != nullptr) ::munmap(data_, size_);
}

namespace {

/// A memfd of huge pages also accepts seals, but the kernel does not guarantee its pages: a write to a private mapping
/// of it can end in SIGBUS.
bool is_plain_memory(const UniqueFd& descriptor) {
    struct statfs system {};
    return ::fstatfs(descriptor.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

bool has_no_hole(const UniqueFd& descriptor, std::size_t bytes) {
    return ::lseek(descriptor.get(), 0, SEEK_HOLE) == static_cast<off_t>(bytes);
}

/// Pages that posix_fallocate() made but no process touched count as holes until they are read once. Stops if reading
/// allocates pages: they would count as memory of this process.
void touch_all(const UniqueFd& descriptor, std::size_t bytes, std::uint64_t allocated) {
    constexpr std::size_t kAtOnce = std::size_t{1} << 20;
    for (std::size_t at = 0; at < bytes && allocated_bytes(descriptor) <= allocated; at += kAtOnce) {
        const std::size_t size = std::min(kAtOnce, bytes - at);
        void* mapped =
            ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor.get(), static_cast<off_t>(at));
        if (mapped == MAP_FAILED) return;
        ::munmap(mapped, size);
    }
}

/// A missing page would be allocated on the first access; if that fails, the access ends in SIGBUS.
bool has_all_pages(const UniqueFd& descriptor, std::size_t bytes) {
    const std::uint64_t before = allocated_bytes(descriptor);
    if (before < bytes) return false;
    if (has_no_hole(descriptor, bytes)) return true;
    touch_all(descriptor, bytes, before);
    // If reading allocated memory, there was a hole, and pages beyond the end had hidden it.
    return has_no_hole(descriptor, bytes) && allocated_bytes(descriptor) <= before;
}

void check_kind(const UniqueFd& descriptor, std::size_t bytes, int wanted) {
    const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
    if (seals < 0) throw BadSegment("a segment must be a memfd");
    if (!is_plain_memory(descriptor)) throw BadSegment("a segment must be a memfd without MFD_HUGETLB");
    if ((seals & wanted) != wanted)
        throw BadSegment("a segment must be sealed (F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE)");
    struct stat found {};
    if (::fstat(descriptor.get(), &found) != 0 || static_cast<std::uint64_t>(found.st_size) != bytes)
        throw BadSegment("a segment must have the size that was named");
    if (bytes == 0 || bytes % page_size() != 0) throw BadSegment("a segment must have whole pages");
}

void check_memory(const UniqueFd& descriptor, std::size_t bytes, int wanted, bool each_page) {
    check_kind(descriptor, bytes, wanted);
    // After the seals: with F_SEAL_FUTURE_WRITE no process can make a hole any more.
    const bool all = each_page ? has_all_pages(descriptor, bytes) : allocated_bytes(descriptor) >= bytes;
    if (!all) throw BadSegment("all pages of a segment must be there (posix_fallocate)");
}

std::byte* map(const UniqueFd& descriptor, std::size_t bytes, int flags) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor.get(), 0);
    if (mapped == MAP_FAILED && errno == EACCES) throw BadSegment("a segment must be open for reading");
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(mapped);
}

}  // namespace

std::uint64_t allocated_bytes(const UniqueFd& memory) {
    constexpr std::uint64_t kBlock = 512;  // of st_blocks
    struct stat found {};
    return ::fstat(memory.get(), &found) == 0 ? static_cast<std::uint64_t>(found.st_blocks) * kBlock : 0;
}

bool is_immutable(const UniqueFd& memory) {
    constexpr int kAll = kSeals | kFinalSeals;
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    return seals >= 0 && (seals & kAll) == kAll;
}

bool is_allocated(const UniqueFd& memory, std::size_t bytes) {
    return is_plain_memory(memory) && has_all_pages(memory, bytes);
}

Segment::Segment(std::shared_ptr<const UniqueFd> immutable, std::size_t bytes)
    : SegmentFile(bytes, Sharing::read_only, std::move(immutable)) {
    check_kind(*descriptor_, bytes, kSeals | kFinalSeals);
    data_ = map(*descriptor_, bytes, MAP_PRIVATE | MAP_NORESERVE);
    private_ = true;
}

Mapping::Mapping(const UniqueFd& descriptor, std::size_t bytes, Sharing sharing, Sender sender)
    : size_(bytes), private_(sharing == Sharing::read_only) {
    // Others may make holes in a writable segment.
    check_memory(descriptor, bytes, private_ ? kSeals : kWritableSeals, !private_ || sender == Sender::anyone);
    data_ = map(descriptor, bytes, private_ ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED);
}

Mapping::~Mapping() {
    guard_.reset();  // first: a new mapping may reuse the addresses
    ::munmap(data_, size_);
}

void Mapping::survive_faults(std::shared_ptr<FaultCount> faults) {
    if (guard_ == nullptr) guard_ = std::make_unique<GuardedMemory>(data_, size_, std::move(faults));
}

bool Mapping::differs(std::size_t offset, std::size_t bytes) const {
    return !private_ || is_broken() || has_written_pages(data_ + offset, bytes, best_page_table());
}

bool Mapping::forget_writes_if_cheap() const {
    return !private_ || drop_written_pages_if_few(data_, size_, best_page_table());
}

void Mapping::forget_writes() const {
    if (private_) drop_written_pages(data_, size_, best_page_table());
}

std::unique_ptr<Mapping> MappingCache::take(const std::string& segment, const std::function<Source()>& source) {
    auto idle = state_.with([&](State& state) {
        ++state.used[segment].count;
        return state.idle.take(segment);
    });
    if (!idle.empty()) return std::move(idle.front().memory);
    try {
        const Source made = source();
        return std::make_unique<Mapping>(*made.descriptor, made.bytes, made.sharing, made.sender);
    } catch (...) {
        state_.with([&](State& state) { end_use(state, segment); });
        throw;
    }
}

void MappingCache::put_back(const std::string& segment, std::unique_ptr<Mapping> mapping, bool is_clean) {
    const bool is_broken = mapping->is_broken();
    IdleMappings::Entries gone;  // unmapped outside the lock: unmapping is slow
    try {
        if (!is_clean && !is_broken) mapping->forget_writes();
        gone.push_back({segment, std::move(mapping)});
    } catch (...) {
        state_.with([&](State& state) { end_use(state, segment); });
        throw;
    }
    state_.with([&](State& state) {
        const bool forgotten = end_use(state, segment);
        if (forgotten || is_broken) return;
        state.idle.put(gone);
        while (state.idle.size() > limits_.max_idle || state.idle.bytes() > limits_.max_idle_bytes)
            state.idle.evict(gone);
    });
}

/// Returns whether the segment was forgotten meanwhile.
bool MappingCache::end_use(State& state, const std::string& segment) {
    const auto found = state.used.find(segment);
    const bool forgotten = found->second.forgotten;
    if (--found->second.count == 0) state.used.erase(found);
    return forgotten;
}

void MappingCache::forget(const std::string& segment) {
    IdleMappings::Entries gone;
    state_.with([&](State& state) {
        state.idle.take_all(segment, gone);
        if (const auto found = state.used.find(segment); found != state.used.end()) found->second.forgotten = true;
    });
}

MappingCache::Use MappingCache::use() const {
    return state_.with([](const State& state) {
        Use use{0, state.idle.size(), state.idle.bytes()};
        for (const auto& [segment, used] : state.used)
            use.used += used.count;
        return use;
    });
}

}  // namespace shared_tensor::local
