#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "local/segments/mapping.hpp"

namespace shared_tensor::local {

struct MappingLimits {
    std::uint64_t max_idle_bytes = std::uint64_t{8} << 30;  ///< mapped but unused; costs page tables, not memory
    std::size_t max_idle = 4096;
};

/// Mappings of other processes' segments. Unused mappings are kept, because the first access to a mapped page costs
/// more than reading it. Two living tensors in one segment each have a mapping of their own, so that writes to one are
/// not visible in the other.
///
/// Thread safety: all methods from any thread.
class MappingCache {
public:
    explicit MappingCache(MappingLimits limits = {});

    /// A segment as its maker sent it.
    struct Source {
        std::shared_ptr<const UniqueFd> descriptor;
        std::size_t bytes = 0;
        Sharing sharing = Sharing::read_only;
    };
    /// A mapping for one user: an idle mapping of the segment, or a new mapping of the result of `source()`, which may
    /// block; its exceptions are passed on. Return the mapping with put_back().
    std::unique_ptr<Mapping> take(const std::string& segment, const std::function<Source()>& source);
    /// Drops the mapping's writes unless `is_clean`: call it on a background thread. A broken mapping is not kept.
    void put_back(const std::string& segment, std::unique_ptr<Mapping> mapping, bool is_clean = false);

    /// The maker has freed the segment: unmaps idle mappings now, and used mappings when they are put back.
    void forget(const std::string& segment);

    struct Use {
        std::size_t used = 0, idle = 0;
        std::uint64_t idle_bytes = 0;
    };
    Use use() const;

private:
    struct Shelf;
    std::unique_ptr<Shelf> shelf_;

public:
    ~MappingCache();
};

}  // namespace shared_tensor::local
