#pragma once

#include <cstddef>
#include <new>

namespace shared_tensor::test {

/// While it lives, the allocation number `number` of this thread (counted from 0) throws std::bad_alloc. Only in
/// programs that are linked with failing_memory.cpp.
class FailingMemory {
public:
    explicit FailingMemory(std::size_t number);
    FailingMemory(const FailingMemory&) = delete;
    FailingMemory& operator=(const FailingMemory&) = delete;
    ~FailingMemory();
};

/// Calls `step` until it succeeds, and lets another allocation fail each time. Calls `check` after each failure.
template <class Step, class Check>
void with_each_allocation_failing(Step step, Check check) {
    for (std::size_t number = 0;; ++number) {
        try {
            const FailingMemory failing(number);
            return step();
        } catch (const std::bad_alloc&) {
        }
        check();
    }
}

}  // namespace shared_tensor::test
