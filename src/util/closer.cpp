#include "util/closer.hpp"

#include <atomic>
#include <memory>
#include <string>

#include "util/process_mark.hpp"

namespace shared_tensor {

namespace {

struct Owned {
    explicit Owned(const std::string& name) : thread(name) {}
    const ProcessMark process;
    Background thread;
};

Background& of_this_process(std::atomic<Owned*>& current, const char* name) {
    Owned* found = current.load();
    while (found == nullptr || !found->process.is_here()) {
        auto made = std::make_unique<Owned>(name);
        if (current.compare_exchange_strong(found, made.get())) return made.release()->thread;
    }
    return found->thread;
}

}  // namespace

Background& closer() {
    static std::atomic<Owned*> current{nullptr};
    return of_this_process(current, "st-closer");
}

Background& messenger() {
    static std::atomic<Owned*> current{nullptr};
    return of_this_process(current, "st-messenger");
}

}  // namespace shared_tensor
