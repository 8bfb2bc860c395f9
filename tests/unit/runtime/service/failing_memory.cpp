#include "support/failing_memory.hpp"

#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
thread_local std::size_t until_failure = kNever;

}  // namespace

void* operator new(std::size_t bytes) {
    if (until_failure != kNever && until_failure-- == 0) {
        until_failure = kNever;
        throw std::bad_alloc();
    }
    while (true) {
        if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
        const std::new_handler handler = std::get_new_handler();  // as the operator that this one replaces
        if (handler == nullptr) throw std::bad_alloc();
        handler();
    }
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {  // a sanitizer's own would not suit our delete
    return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace shared_tensor::test {

FailingMemory::FailingMemory(std::size_t number) { until_failure = number; }
FailingMemory::~FailingMemory() { until_failure = kNever; }

}  // namespace shared_tensor::test
