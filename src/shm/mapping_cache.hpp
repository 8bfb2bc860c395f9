#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shm/mapping.hpp"

namespace shared_tensor::shm {

struct MappingLimits {
    std::uint64_t max_idle_bytes = std::uint64_t{8} << 30;  ///< mapped though unused; costs page tables, not memory
    std::size_t max_idle = 4096;
};

/// Mappings of other processes' segments, kept when they are not used: the first touch of a mapped page costs more than
/// reading it. Of two tensors in one segment each has a mapping of its own while both live, so that neither sees what
/// is written to the other.
///
/// Thread safety: all methods from any thread.
class MappingCache {
public:
    explicit MappingCache(MappingLimits limits = {});

    /// What a segment is, from its maker.
    struct Source {
        std::shared_ptr<const UniqueFd> descriptor;
        std::size_t bytes = 0;
        Sharing sharing = Sharing::read_only;
    };
    /// A mapping nobody else uses: an idle one of that segment, or a new one of what `source()` gives (it may block;
    /// what it throws is passed on). Returned with put_back().
    std::unique_ptr<Mapping> take(const std::string& segment, const std::function<Source()>& source);
    /// Its writes are forgotten first, unless that was done: for a background thread. A broken one is not kept.
    void put_back(const std::string& segment, std::unique_ptr<Mapping> mapping, bool is_clean = false);

    /// The maker has given up that segment: idle mappings go, used ones when they come back.
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

}  // namespace shared_tensor::shm
