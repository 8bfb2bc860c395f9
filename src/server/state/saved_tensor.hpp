#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/system/descriptor_store.hpp"
#include "local/segments/segment_pool.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/calls/outcome.hpp"

namespace shared_tensor::server {

/// A tensor that outlives the process: what to write down about it, and the memory of its elements.
struct SavedTensor {
    codec::Json record;
    DescriptorStore::StoredPointer memory;  ///< null if the elements are in `record`
};

/// Saves tensors and results, and makes them from what was saved. Thread safety: all methods from any thread.
class TensorSaver {
public:
    /// `store` and `pool` outlive it.
    TensorSaver(DescriptorStore& store, local::SegmentPool& pool) : store_(&store), pool_(&pool) {}

    /// Saves a tensor that never changes. Elements in a segment of the pool stay where they are; others are copied.
    /// Throws NotStored, also for a tensor on a device; std::bad_alloc, std::system_error.
    std::shared_ptr<const SavedTensor> save(const codec::TensorPointer& tensor) const;
    /// Makes a tensor of `owner`. Copies nothing but small tensors. Blocks while the earlier process still has the
    /// memory mapped, in the first 5 s of this object. Throws std::exception.
    struct Restored {
        codec::TensorPointer tensor;
        std::shared_ptr<const SavedTensor> saved;
    };
    Restored restore(const codec::Json& record, const std::string& owner) const;

    /// Saves a result or error: copies its tensors. `memory` keeps them. Throws NotStored for objects, which end with
    /// the process, and for tensors if half of the descriptors are in use; and what save() throws.
    using Memory = std::vector<DescriptorStore::StoredPointer>;
    codec::Json save(const runtime::CallOutcome& outcome, Memory& memory) const;
    runtime::OutcomePointer restore(const codec::Json& record, const std::string& owner, Memory& memory) const;

private:
    SavedTensor copy(const codec::TensorPointer& tensor) const;

    DescriptorStore* const store_;
    local::SegmentPool* const pool_;
    /// For all that is restored together: until then restore() waits for the end of the earlier process's mappings.
    const SteadyTime latest_ = real_clock().now() + std::chrono::seconds(5);
};

}  // namespace shared_tensor::server
