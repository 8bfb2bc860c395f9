#include "tensor/shared_allocation.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

namespace shared_tensor::tensor {

namespace {

/// A lease and a mapping cost more than the copy of so few bytes.
constexpr std::size_t kMinBytes = 32 << 10;

struct Scope {
    shm::SegmentPool* pool;
    std::string principal;
};
thread_local std::vector<Scope> scopes;

/// What a tensor holds of its segment.
struct Held {
    shm::PooledSegmentPointer segment;
    std::function<void()> gone;
};

void let_go(void* held) {
    const std::unique_ptr<Held> owned(static_cast<Held*>(held));
    owned->segment.reset();
    if (owned->gone) owned->gone();
}

/// Null when the pool has no room.
c10::DataPtr allocate_in(const Birthplace& place, std::size_t bytes) {
    try {
        auto segment = place.sharing == shm::Sharing::read_only
                           ? place.pool.take_place(bytes, place.principal)
                           : place.pool.take(bytes, place.principal, place.sharing);
        auto held = std::make_unique<Held>(Held{std::move(segment), place.gone});
        void* data = held->segment->data();
        return {data, held.release(), &let_go, c10::Device(c10::DeviceType::CPU)};
    } catch (const std::bad_alloc&) {
        return {};
    } catch (const std::system_error&) {
        return {};
    }
}

/// libtorch's own, but for threads in a scope.
class ScopedAllocator final : public c10::Allocator {
public:
    explicit ScopedAllocator(c10::Allocator& ordinary) : ordinary_(&ordinary) {}

    c10::DataPtr allocate(std::size_t bytes) override {
        if (!scopes.empty() && bytes >= kMinBytes) {
            c10::DataPtr shared = allocate_in({*scopes.back().pool, scopes.back().principal}, bytes);
            if (shared) return shared;
        }
        return ordinary_->allocate(bytes);
    }
    bool is_simple_data_ptr(const c10::DataPtr& data) const override { return ordinary_->is_simple_data_ptr(data); }
    /// None: memory of a scope has another one.
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

private:
    c10::Allocator* const ordinary_;
};

/// Lives as long as the process: any tensor's storage may point to it.
void install() {
    static auto* const kInstalled = [] {
        auto* made = new ScopedAllocator(*c10::GetAllocator(c10::DeviceType::CPU));
        c10::SetAllocator(c10::DeviceType::CPU, made, UINT8_MAX);
        return made;
    }();
    static_cast<void>(kInstalled);
}

}  // namespace

SharedAllocation::SharedAllocation(shm::SegmentPool& pool) : pool_(&pool) { install(); }

at::Tensor SharedAllocation::empty(std::string_view principal, std::span<const std::int64_t> sizes,
                                   int scalar_type) const {
    at::Tensor made;
    make_tensor_in({*pool_, principal}, sizes, scalar_type, made);
    return made;
}

at::Tensor SharedAllocation::empty_writable(std::string_view principal, std::span<const std::int64_t> sizes,
                                            int scalar_type) const {
    at::Tensor made;
    make_tensor_in({*pool_, principal, shm::Sharing::writable, {}}, sizes, scalar_type, made);
    return made;
}

void SharedAllocation::enter(std::string_view principal) const { scopes.push_back({pool_, std::string(principal)}); }

void SharedAllocation::leave() const noexcept { scopes.pop_back(); }

namespace {

/// Of one tensor: libtorch checks the sizes and counts the bytes, then asks here for them.
class OneTensor final : public c10::Allocator {
public:
    explicit OneTensor(const Birthplace& place) : place_(&place) {}
    c10::DataPtr allocate(std::size_t bytes) override {
        c10::DataPtr shared = bytes > 0 ? allocate_in(*place_, bytes) : c10::DataPtr();
        return shared ? std::move(shared) : c10::GetAllocator(c10::DeviceType::CPU)->allocate(bytes);
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

private:
    const Birthplace* const place_;
};

}  // namespace

void make_tensor_in(const Birthplace& place, std::span<const std::int64_t> sizes, int scalar_type, at::Tensor& made) {
    OneTensor allocator(place);
    at::Tensor fresh(at::detail::empty_generic(at::IntArrayRef(sizes.data(), sizes.size()), &allocator,
                                               c10::DispatchKeySet(c10::DispatchKey::CPU),
                                               static_cast<c10::ScalarType>(scalar_type), std::nullopt));
    c10::StorageImpl* storage = fresh.storage().unsafeGetStorageImpl();
    storage->set_resizable(false);  // nobody may ask that allocator for more: it is gone when this returns
    storage->set_allocator(nullptr);
    made = std::move(fresh);
}

void make_ordinary_tensor(std::span<const std::int64_t> sizes, int scalar_type, at::Tensor& made) {
    made = at::Tensor(
        at::detail::empty_cpu(at::IntArrayRef(sizes.data(), sizes.size()), static_cast<c10::ScalarType>(scalar_type)));
}

bool is_writable_by_clients(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return false;
    const auto* held = tensor.storage().data_ptr().cast_context<Held>(&let_go);
    return held != nullptr && held->segment->segment().sharing() == shm::Sharing::writable;
}

}  // namespace shared_tensor::tensor
