#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/codec/json_source.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

using codec::described;
using codec::Json;

/// The transport of a tensor's bytes: the name of the descriptor's member that refers to them.
enum class TransportKind : std::uint8_t { data, base64, body, shm, cuda_ipc, url };
inline constexpr std::array kTransportKinds{TransportKind::data, TransportKind::base64,   TransportKind::body,
                                            TransportKind::shm,  TransportKind::cuda_ipc, TransportKind::url};
std::string_view name_of(TransportKind transport);
std::optional<TransportKind> parse_transport(std::string_view name);
/// Returns a list as text: "data, base64".
std::string join(const std::vector<TransportKind>& transports);

struct DescriptorLimits {
    /// Limit of elements x item size for a tensor whose strides repeat elements (stride 0), so that it is larger than
    /// the bytes sent. The default is the most that a client could send without repetition.
    std::uint64_t max_expanded_bytes = std::uint64_t{2} << 30;
};

/// A part of the memory that a descriptor names, in bytes.
struct Region {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

/// A part of a segment of shared memory.
struct SharedPlace {
    std::string segment;
    Region region;
};

/// A checked `$tensor` object: no count overflows, there is exactly one transport and no unknown member. The content of
/// the transport's member is not checked yet: its Transport checks it against the memory that it names.
struct Descriptor {
    DType dtype = DType::float32;
    Shape shape;
    Shape strides;  ///< empty when contiguous
    Extent extent;
    std::string device = "cpu";  ///< or "cuda:<uuid>"
    std::string lease;           ///< id of the lease that keeps the bytes; empty: none
    TransportKind transport = TransportKind::data;
    const Json* content = nullptr;  ///< the transport's member, inside the JSON that was parsed
    SharedPlace place;              ///< set instead of `content` by read_shm_descriptor()
};

/// Whether the bytes of the tensor are compressed: those of a `body` may be.
bool is_compressed(const Descriptor& descriptor);

/// Parses and checks the value of "$tensor". The result refers to `json`. Throws InvalidValue, whose path names the
/// member.
Descriptor parse_descriptor(const Json& json, const DescriptorLimits& limits = {});

/// Reads the descriptor of a leased tensor in shared memory if it has exactly the form that TensorTransfer writes. It
/// makes no JSON tree, which would cost a client more than all else of a tensor that is handed over. Returns nullopt
/// for any other text, valid or not: use parse_descriptor() then. Both check shape and strides by the same code.
std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits = {});

/// Returns the region's members as JSON text: "offset":0,"size":4096
std::string region_members(const Region& region);

/// Reads offset and size from the transport's member. Throws InvalidValue (path "shm.size", for example) if the region
/// is not inside `available` bytes, if it does not have the size that the tensor needs (unless it is compressed), or if
/// the members are others than offset, size and `others`.
Region parse_region(const Descriptor& descriptor, std::uint64_t available,
                    std::initializer_list<std::string_view> others = {});
/// Like parse_region(), for a region that was already read.
void check_region(const Descriptor& descriptor, const Region& region, std::uint64_t available);
/// Return a string or an integer >= 0 from the transport's member. Throw InvalidValue.
const std::string& region_text(const Descriptor& descriptor, std::string_view name);
std::uint64_t region_natural(const Descriptor& descriptor, std::string_view name);

/// Throws InvalidValue if has_odd_bools(). `data` is the first element of a tensor with the layout of `descriptor`.
void check_bools(const Descriptor& descriptor, const std::byte* data);

}  // namespace shared_tensor::tensor
