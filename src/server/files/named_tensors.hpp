#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "base/concurrency/guarded.hpp"
#include "local/segments/segment_pool.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/tables/tensor_store.hpp"
#include "server/methods/rejected.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::server {

struct SavedTensor;
class SavedState;

/// The error of a request whose condition on versions does not hold. `has_base`: `wanted.if_version` came as "base".
json_rpc::Error version_error(const runtime::TensorStore::Rejected& rejected, const runtime::WantedVersion& wanted,
                              bool has_base = false);

/// Adds a tensor to `value`. Returns the JSON that stands for it in `value.json`.
codec::Json placeholder(codec::Value& value, codec::TensorPointer tensor);

/// The metadata that a client publishes with a tensor or set: short texts by key.
using NamedMetadata = std::map<std::string, std::string, std::less<>>;

/// Members of a set in one allocation. Versions of a set share the blocks that did not change.
struct NamedBlock {
    std::string id;  ///< random: no other block of any server has it
    tensor::TensorSet set;
    std::uint64_t bytes = 0;  ///< memory that the block holds: more than the data of the set if it is an uploaded file
    std::shared_ptr<const SavedTensor> saved{};  ///< null if it ends with the process
};

/// The content of a name: one tensor, or a set of tensors.
struct NamedValue final : runtime::NamedContent {
    codec::TensorPointer tensor;     ///< null if this is a set
    std::vector<NamedBlock> blocks;  ///< of the set; each member is in one of them
    NamedMetadata metadata;
    std::uint64_t file_bytes = 0;              ///< size of the uploaded file that holds the tensor; 0: none
    std::shared_ptr<const SavedTensor> saved;  ///< of `tensor`; null if it ends with the process

    bool is_set() const { return tensor == nullptr; }
    /// The whole content as a value that a function takes. The first call makes it.
    std::shared_ptr<const codec::Value> whole() const;
    /// The set as a safetensors file, which has the metadata. The first call makes it. Throws SafetensorsError if the
    /// format does not have one of the dtypes.
    std::shared_ptr<const tensor::TensorFile> file() const;
    std::size_t size() const;  ///< members of the set
    /// A view of a member of the set; null if there is none of this name.
    codec::TensorPointer member(std::string_view name) const;
    tensor::TensorMap members() const;
    /// The size of the tensor, or of the set's allocations.
    std::uint64_t data_bytes() const;
    std::uint64_t bytes() const override;
    /// Returns the digest of a part of a file with this content; `part` names the part. The first call computes it with
    /// `make`, which may block. Digests are kept, because a version never changes and many clients may fetch the same
    /// parts.
    std::string digest(const std::string& part, const std::function<std::string()>& make) const;

private:
    mutable Guarded<std::unordered_map<std::string, std::string>> digests_;
    mutable std::once_flag once_, file_once_;
    mutable std::shared_ptr<const codec::Value> whole_;
    mutable std::shared_ptr<const tensor::TensorFile> file_;
};

/// The tensors that a server keeps by name. They are placed so that handing them over copies nothing.
/// Thread safety: all methods from any thread.
class NamedTensors {
public:
    /// The limit of members in a set. The largest models have some thousand tensors, and each member costs memory
    /// besides its bytes.
    static constexpr std::size_t kMaxMembers = 100'000;
    /// The limit of blocks in a set. Each block is a segment, and costs each reader a lease.
    static constexpr std::size_t kMaxBlocks = 16;

    /// Puts tensors into segments of `pool`, or into ordinary memory if `pool` is null. `state`, if not null, saves
    /// what is published. Both outlive it.
    NamedTensors(NamedTensorLimits limits, local::SegmentPool* pool, SavedState* state)
        : store_(limits), pool_(pool), state_(state) {}

    runtime::TensorStore& store() { return store_; }
    const runtime::TensorStore& store() const { return store_; }

    /// place() copies the tensors once. It does not copy a single tensor that lies in a segment already, has no gaps,
    /// and that nobody else can write to: it seals the segment instead. It also keeps immutable memory of a client
    /// without a copy: one tensor, or the data of a set. Throws std::bad_alloc, InvalidValue.
    struct Placed {
        std::shared_ptr<NamedValue> value;
        std::uint64_t copied = 0;  ///< bytes
    };
    Placed place(const std::string& owner, const codec::TensorPointer& tensor) const;
    Placed place(const std::string& owner, const tensor::TensorMap& tensors) const;
    Placed place(const std::string& owner, tensor::Manifest manifest, const codec::TensorPointer& data) const;

    /// For tensors of this process to which nobody writes any more: they stay where they are if all of them lie in one
    /// segment of block_for(owner). Else copies them.
    Placed place_own(const std::string& owner, const codec::TensorPointer& tensor) const;
    Placed place_own(const std::string& owner, tensor::TensorMap tensors) const;

    /// Publishes what was placed, and removes a name, as the store does. Throw std::bad_alloc, std::system_error, and
    /// NotStored if what is published cannot be saved.
    using Rejected = runtime::TensorStore::Rejected;
    std::variant<runtime::NamedPointer, Rejected> publish(const std::string& owner, const std::string& name,
                                                          std::shared_ptr<NamedValue> value,
                                                          const runtime::WantedVersion& wanted);
    std::variant<runtime::NamedPointer, Rejected> remove(const std::string& owner, const std::string& name,
                                                         std::optional<std::uint64_t> if_version);
    /// What is to be published under a name.
    struct Put {
        const std::string& owner;
        const std::string& name;
        std::uint64_t bytes = 0;
        runtime::WantedVersion wanted{};
        bool has_base = false;  ///< it is the changed members of version `wanted.if_version` ("base")
    };
    /// Throws server::Rejected if the store would reject the put now.
    void check(const Put& what) const;
    /// Throws server::Rejected for names under which nothing may be published.
    static void check_name(std::string_view name);
    /// Throws server::Rejected for too many members, names that members may not have, and too long metadata. `members`:
    /// a map by name. `parameter`: for the error.
    template <class Members>
    static void check_content(std::string_view parameter, const Members& members, const NamedMetadata& metadata) {
        if (members.size() > kMaxMembers)
            reject(parameter, "at most " + std::to_string(kMaxMembers) + " members", std::to_string(members.size()));
        for (const auto& [name, member] : members) {
            if (const std::string rejection = runtime::member_name_rejection(name); !rejection.empty())
                reject(parameter, "names for members", rejection);
        }
        if (const std::string rejection = metadata_rejection(metadata); !rejection.empty())
            reject(parameter, "shorter metadata", rejection);
    }
    struct Made {
        runtime::NamedPointer named;
        std::uint64_t copied = 0;  ///< bytes
    };
    /// Publishes the result of `place`, which is not called if the store would reject the put. Throws
    /// server::Rejected with the reason, also if there is no memory, InvalidValue as with_changes() does, and what
    /// `place` throws.
    Made put(const Put& what, const std::function<Placed()>& place);

    /// Takes a file of `bytes` bytes that was read into memory of block_for(). The content stays in that memory. Only a
    /// tensor that is not in C order, or a set with a member that is not aligned to its items, is copied. Throws
    /// std::bad_alloc.
    Placed adopt(const std::string& owner, tensor::FileContent content, std::uint64_t bytes) const;
    /// Makes a version of a set from its current version and a set of changed members. It shares the blocks of `base`.
    /// The members of a block are copied into a new block if more than half of the block has been replaced, so that a
    /// version holds at most twice its bytes, or if there are more than kMaxBlocks. Metadata of `changes` has
    /// precedence. Throws InvalidValue if `base` is null or one tensor, if `changes` is one tensor, or if there are too
    /// many members or too long metadata with those of `base`; std::bad_alloc.
    Placed with_changes(const std::string& owner, const runtime::NamedPointer& base, Placed changes) const;
    /// Returns a function that allocates memory from which named tensors are handed over without a copy.
    tensor::TakeBlock block_for(const std::string& owner) const;
    /// A block of block_for(). Throws server::Rejected, with the reason, if there is no memory.
    tensor::Block take_block(const std::string& owner, std::uint64_t bytes) const;

    /// Returns the value of `name` or `set/member`: a tensor, or an object with a tensor for each member of a set.
    /// Returns null if `owner` has no such name. Copies nothing: all readers share the same elements. The value keeps
    /// its version alive.
    std::shared_ptr<const codec::Value> value(std::string_view owner, std::string_view name) const;

    /// Returns why `metadata` is invalid, as a text for people; empty if it is valid.
    static std::string metadata_rejection(const NamedMetadata& metadata);

    /// A name as a client writes it: NAME or SET/MEMBER.
    struct Address {
        std::string_view name, member;  ///< `member` is empty for the whole content
    };
    static Address parse_address(std::string_view text);
    static const NamedValue& value_of(const runtime::Named& named) {
        return static_cast<const NamedValue&>(*named.content);
    }

private:
    [[noreturn]] static void fail(const Put& what, const Rejected& rejected);
    local::PooledSegmentPointer segment_of(const codec::TensorPointer& tensor) const;
    std::optional<tensor::Block> kept(const std::string& owner, const codec::TensorPointer& tensor) const;
    bool can_seal(const std::string& owner, const codec::TensorPointer& tensor) const;

    runtime::TensorStore store_;
    local::SegmentPool* const pool_;
    SavedState* const state_;
};

}  // namespace shared_tensor::server
