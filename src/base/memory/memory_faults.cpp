#include "base/memory/memory_faults.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include "base/log/crash.hpp"

namespace shared_tensor {

/// One entry of the table. `version` is odd while the other fields change; the handler skips the entry then. It never
/// needs such an entry: the entry of memory in use does not change.
struct GuardedMemory::Entry {
    std::atomic<bool> taken{false};
    std::atomic<std::uint64_t> version{0};
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::size_t> size{0};
    std::atomic<FaultCount*> faults{nullptr};
    std::atomic<bool> broken{false};

    void set(std::uintptr_t the_begin, std::size_t the_size, FaultCount* the_faults) noexcept {
        version.fetch_add(1);
        begin.store(the_begin);
        size.store(the_size);
        faults.store(the_faults);
        broken.store(false);
        version.fetch_add(1);
    }
};

namespace {

using Entry = GuardedMemory::Entry;

/// The table grows in chunks that are never freed, so the handler can walk it at any time.
struct Chunk {
    std::array<Entry, 64> entries;
    std::atomic<Chunk*> next{nullptr};
};
Chunk first_chunk;
std::atomic<std::size_t> entries_taken{0};

Entry* take_free(Chunk& chunk) noexcept {
    for (Entry& entry : chunk.entries) {
        if (!entry.taken.load(std::memory_order_relaxed) && !entry.taken.exchange(true)) return &entry;
    }
    return nullptr;
}

/// Lock-free, so that it also works in a child that was forked while another thread was in here.
Entry& take_entry() {
    for (Chunk* chunk = &first_chunk;;) {
        if (Entry* entry = take_free(*chunk)) return *entry;
        Chunk* next = chunk->next.load();
        if (next == nullptr) {
            auto made = std::make_unique<Chunk>();
            if (chunk->next.compare_exchange_strong(next, made.get())) next = made.release();
        }
        chunk = next;
    }
}

struct Found {
    Entry* entry = nullptr;
    std::uintptr_t begin = 0;
    std::size_t size = 0;
    FaultCount* faults = nullptr;
};

Found find_entry(std::uintptr_t address) noexcept {
    for (Chunk* chunk = &first_chunk; chunk != nullptr; chunk = chunk->next.load()) {
        for (Entry& entry : chunk->entries) {
            if (const std::uintptr_t begin = entry.begin.load(); begin == 0 || address < begin) continue;
            const std::uint64_t version = entry.version.load();
            const Found found{&entry, entry.begin.load(), entry.size.load(), entry.faults.load()};
            const bool inside = address >= found.begin && address - found.begin < found.size;
            if (inside && version % 2 == 0 && entry.version.load() == version) return found;
        }
    }
    return {};
}

std::uintptr_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

// The functions from here on run in the signal handler: they call async-signal-safe functions only.

/// False if the fault was not in guarded memory, or if there is no memory for zero pages.
bool replace_by_zeros(const siginfo_t& info) noexcept {
    const bool by_kernel = info.si_code > 0 && info.si_code != BUS_ADRALN;
    const Found found = by_kernel ? find_entry(number_of(info.si_addr)) : Found();
    if (found.entry == nullptr) return false;
    // Count before the zeros can be read, so that any thread that read zeros finds the count changed.
    found.faults->add();
    found.entry->broken.store(true);
    // A direct system call: the mmap of a sanitizer is not safe in a handler, and would count as a write.
    constexpr int kFlags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    return ::syscall(SYS_mmap, found.begin, found.size, PROT_READ | PROT_WRITE, kFlags, -1, 0) != -1;
}

struct sigaction previous;  // written before the handler is installed

void end_by_default(int signal, const siginfo_t& info) noexcept {
    if (info.si_code <= 0) return end_by_signal(signal, "ended by SIGBUS, which a process sent");
    std::array<char, 160> reason{};
    std::size_t size = 0;
    const auto append = [&](std::string_view text) {
        std::memcpy(reason.data() + size, text.data(), text.size());
        size += text.size();
    };
    append("ended by SIGBUS at address 0x");
    for (int shift = 60; shift >= 0; shift -= 4)
        reason[size++] = "0123456789abcdef"[number_of(info.si_addr) >> shift & 0xF];
    append(" (a file that is mapped there was cut or overwritten, or the machine lost the memory)");
    end_by_signal(signal, {reason.data(), size});
}

void handle(int signal, siginfo_t* info, void* context) noexcept {
    const int error = errno;
    if (!replace_by_zeros(*info)) {
        if ((previous.sa_flags & SA_SIGINFO) != 0) {
            previous.sa_sigaction(signal, info, context);
        } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
            previous.sa_handler(signal);
        } else {
            end_by_default(signal, *info);
        }
    }
    errno = error;
}

}  // namespace

const std::shared_ptr<FaultCount>& FaultCount::of_own_memory() {
    static const auto* kCount = new std::shared_ptr<FaultCount>(std::make_shared<FaultCount>());  // never destroyed
    return *kCount;
}

void handle_memory_faults() {
    static std::once_flag once;
    std::call_once(once, [] {
        ::sigaction(SIGBUS, nullptr, &previous);
        struct sigaction ours {};
        ours.sa_sigaction = &handle;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        ::sigaction(SIGBUS, &ours, nullptr);
    });
}

GuardedMemory::GuardedMemory(std::byte* data, std::size_t size, std::shared_ptr<FaultCount> faults)
    : faults_(std::move(faults)), entry_(take_entry()) {
    entries_taken.fetch_add(1);
    entry_.set(number_of(data), size, faults_.get());
}

GuardedMemory::~GuardedMemory() {
    entry_.set(0, 0, nullptr);
    entry_.taken.store(false);
    entries_taken.fetch_sub(1);
}

bool GuardedMemory::is_broken() const noexcept { return entry_.broken.load(); }

bool is_guarded(const void* address) noexcept {
    return entries_taken.load() != 0 && find_entry(number_of(address)).entry != nullptr;
}

}  // namespace shared_tensor
