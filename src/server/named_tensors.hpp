#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "codec/value.hpp"
#include "service/tensor_store.hpp"
#include "shm/segment_pool.hpp"
#include "tensor/tensor_file.hpp"
#include "tensor/tensor_set.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// What its publisher says about a tensor or set: short texts by name.
using NamedMetadata = std::map<std::string, std::string, std::less<>>;

/// What stands under a name: one tensor, or a set in one allocation.
struct NamedValue final : service::NamedContent {
    codec::TensorPointer tensor;  ///< null: a set
    tensor::TensorSet set;        ///< data is null: a tensor
    NamedMetadata metadata;
    std::uint64_t file_bytes = 0;  ///< of the file that it lies in as a whole; 0: in no file

    bool is_set() const { return tensor == nullptr; }
    /// All of it as a function takes it; made when it is first asked for.
    std::shared_ptr<const codec::Value> whole() const;
    const codec::TensorPointer& memory() const { return is_set() ? set.data : tensor; }
    std::uint64_t bytes() const override;
    /// The digest of a part of a file of it, by what names that part: made once, since a version never changes, and
    /// many may fetch the same parts. Blocks for `make`.
    std::string digest(const std::string& part, const std::function<std::string()>& make) const;

private:
    mutable Guarded<std::unordered_map<std::string, std::string>> digests_;
    mutable std::once_flag once_;
    mutable std::shared_ptr<const codec::Value> whole_;
};

/// The tensors that a server keeps by name, placed so that handing them over copies nothing.
/// Thread safety: all methods from any thread.
class NamedTensors {
public:
    /// Of one set: the largest models have some thousand tensors, and each costs memory beside its bytes.
    static constexpr std::size_t kMaxMembers = 100'000;

    /// Tensors are put into segments of `pool`, or, where that is null, into ordinary memory.
    NamedTensors(NamedTensorLimits limits, shm::SegmentPool* pool) : store_(limits), pool_(pool) {}

    service::TensorStore& store() { return store_; }
    const service::TensorStore& store() const { return store_; }

    /// Copied once, unless a tensor lies in a segment already, has no gaps, and nobody else can write to it: then the
    /// segment is sealed. Throws std::bad_alloc, InvalidValue.
    struct Placed {
        std::shared_ptr<NamedValue> value;
        std::uint64_t copied = 0;  ///< bytes
    };
    Placed place(const std::string& owner, const codec::TensorPointer& tensor) const;
    Placed place(const std::string& owner, const tensor::TensorMap& tensors) const;
    Placed place(const std::string& owner, tensor::Manifest manifest, const codec::TensorPointer& data) const;

    /// A file of `bytes` that was read into memory of block_for(), where it stays: only what is not aligned to its
    /// items, or is in another order than C's, is copied. Throws std::bad_alloc.
    Placed adopt(const std::string& owner, tensor::FileContent content, std::uint64_t bytes) const;
    /// Memory from which named tensors are handed over without a copy.
    tensor::TakeBlock block_for(const std::string& owner) const;

    /// What `name` stands for, or `set/member`: a tensor, or an object with a tensor for each member. Null when there
    /// is none of that owner's. Copies nothing; the value keeps its version. Its elements are those that all readers
    /// see.
    std::shared_ptr<const codec::Value> value(std::string_view owner, std::string_view name) const;

    /// What is wrong with metadata, in words for people; empty: nothing.
    static std::string metadata_fault(const NamedMetadata& metadata);

    /// A name as it is asked for, and the member that it may name.
    struct Address {
        std::string_view name, member;  ///< member is empty: the whole
    };
    static Address parse_address(std::string_view text);
    static const NamedValue& value_of(const service::Named& named) {
        return static_cast<const NamedValue&>(*named.content);
    }

private:
    shm::PooledSegmentPointer segment_of(const codec::TensorPointer& tensor) const;
    bool can_seal(const std::string& owner, const codec::TensorPointer& tensor) const;

    service::TensorStore store_;
    shm::SegmentPool* const pool_;
};

}  // namespace shared_tensor::server
