#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "base/system/process_mark.hpp"

namespace shared_tensor {

/// A T for each process. A forked child never touches its copy of the parent's T: a thread of the parent may have held
/// a lock in it, and its threads and connections belong to the parent. The child makes a T of its own at first use; the
/// copy is leaked. Thread safety: get() and find() from any thread.
template <class T>
class OfThisProcess {
public:
    constexpr OfThisProcess() = default;
    OfThisProcess(const OfThisProcess&) = delete;
    OfThisProcess& operator=(const OfThisProcess&) = delete;
    ~OfThisProcess() {
        if (Made* const made = current_.load(); made != nullptr && made->process.is_here()) delete made;
    }

    /// The T of this process. If there is none, calls `make`, which returns a std::unique_ptr<T>. Two threads may both
    /// make one; the second is destroyed. Exceptions of `make` are passed on.
    template <class Make>
    T& get(Make make) {
        Made* found = current_.load(std::memory_order_acquire);
        while (found == nullptr || !found->process.is_here()) {
            auto made = std::make_unique<Made>(Made{ProcessMark(), make()});
            if (current_.compare_exchange_strong(found, made.get())) return *made.release()->value;
        }
        return *found->value;
    }
    /// Null if this process has made none.
    T* find() const {
        Made* const found = current_.load(std::memory_order_acquire);
        return found != nullptr && found->process.is_here() ? found->value.get() : nullptr;
    }

private:
    struct Made {
        const ProcessMark process;
        std::unique_ptr<T> value;
    };
    std::atomic<Made*> current_{nullptr};
};

/// For statics that must not be destroyed at the end of the process, because other statics may still use them.
template <class T>
union NeverDestroyed {
    constexpr NeverDestroyed() : value() {}
    ~NeverDestroyed() {}  // NOLINT(modernize-use-equals-default): a defaulted destructor would be deleted
    T value;
};

/// Deletes the object only in the process that made it. A forked child leaks its copy.
template <class T>
class DeleteInItsProcess {
public:
    void operator()(T* object) const {
        if (process_.is_here()) delete object;
    }

private:
    ProcessMark process_;
};

/// A shared_ptr whose object is destroyed only in the process that made it.
template <class T>
std::shared_ptr<T> shared_in_its_process(T* object) {
    return std::shared_ptr<T>(object, DeleteInItsProcess<T>());
}

}  // namespace shared_tensor
