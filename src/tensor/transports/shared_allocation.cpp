#include "tensor/transports/shared_allocation.hpp"

#include <functional>
#include <map>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor::tensor {

namespace {

/// The memory of this process that clients may write to: start address and size in bytes.
using Writable = Guarded<std::map<const std::byte*, std::size_t, std::less<>>>;

/// A forked child has its own map, because it returns no results that its parent made.
constinit NeverDestroyed<OfThisProcess<Writable>> known;

Writable& writable() {
    return known.value.get([] { return std::make_unique<Writable>(); });
}

/// Keeps a segment, and its entry in writable(), while this process uses it.
class WritableSegment {
public:
    WritableSegment(local::PooledSegmentPointer segment, std::size_t bytes) : segment_(std::move(segment)) {
        writable().with([&](auto& all) { all.emplace(segment_->data(), bytes); });
    }
    WritableSegment(const WritableSegment&) = delete;
    WritableSegment& operator=(const WritableSegment&) = delete;
    ~WritableSegment() {
        writable().with([&](auto& all) { all.erase(segment_->data()); });
    }

private:
    const local::PooledSegmentPointer segment_;
};

}  // namespace

detail::CallMemory::Block SharedAllocation::take(std::string_view principal, std::size_t bytes, Writers writers) const {
    try {
        if (writers == Writers::clients_too) {
            auto segment = pool_->take(bytes, principal, local::Sharing::writable);
            void* const data = segment->data();
            return {data, std::make_shared<const WritableSegment>(std::move(segment), bytes)};
        }
        auto segment = pool_->take_place(bytes, principal);
        void* const data = segment->data();
        // A new shared_ptr that only tensors own: the pool also hands out `segment`, so its use count does not show
        // whether a tensor is alone (TensorRef::is_alone).
        return {data, std::make_shared<const local::PooledSegmentPointer>(std::move(segment))};
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {  // no file descriptor is left
    }
    return {};
}

bool is_writable_by_clients(const void* address) {
    const auto* wanted = static_cast<const std::byte*>(address);
    return writable().with([&](const auto& all) {
        auto next = all.upper_bound(wanted);
        if (next == all.begin()) return false;
        --next;
        return std::less<>()(wanted, next->first + next->second);
    });
}

}  // namespace shared_tensor::tensor
