#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tensor/describe.hpp"
#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"
#include "tensor/way.hpp"

namespace shared_tensor::tensor {

struct DescriptorLimits {
    /// What elements x item size may be where strides make it more than the bytes that are there (a stride of 0
    /// repeats one element): as much as a client could have sent for real.
    std::uint64_t max_expanded_bytes = std::uint64_t{2} << 30;
};

/// A part of memory that a descriptor names.
struct Region {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

/// A part of a segment of shared memory.
struct SharedPlace {
    std::string segment;
    Region region;
};

/// A checked `$tensor` object: counts do not overflow, exactly one way, nothing unknown. The way's own member is
/// checked by its medium against the memory that it names.
struct Descriptor {
    DType dtype = DType::float32;
    Shape shape;
    Shape strides;  ///< empty when contiguous
    Extent extent;
    std::string device = "cpu";  ///< or "cuda:<uuid>"
    std::string lease;           ///< what keeps the bytes where they are; empty: none
    Way way = Way::data;
    const Json* content = nullptr;  ///< the way's member; lives in the JSON that was read
    SharedPlace place;              ///< instead of `content`, where no JSON was read (read_shm_descriptor)
};

/// Of one whose way is body: its bytes there are compressed.
bool is_compressed(const Descriptor& descriptor);

/// Throws InvalidValue, whose path names the member.
Descriptor parse_descriptor(const Json& json, const DescriptorLimits& limits = {});

/// Its members as JSON text: "offset":0,"size":4096
std::string region_members(const Region& region);

/// {"offset", "size"} inside `available` bytes, and of the size that the tensor needs. Throws InvalidValue (path
/// "way.member"), for other members than these and `others` too.
Region parse_region(const Descriptor& descriptor, std::uint64_t available,
                    std::initializer_list<std::string_view> others = {});
/// The same for one that was read already.
void check_region(const Descriptor& descriptor, const Region& region, std::uint64_t available);
/// The text, or the number, of that member of the way's object. Throws InvalidValue.
const std::string& region_text(const Descriptor& descriptor, std::string_view name);
std::uint64_t region_natural(const Descriptor& descriptor, std::string_view name);

}  // namespace shared_tensor::tensor
