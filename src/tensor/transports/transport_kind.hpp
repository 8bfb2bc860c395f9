#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::tensor {

/// The transport of a tensor's bytes: the name of the descriptor's member that refers to them.
enum class TransportKind : std::uint8_t { data, base64, body, shm, cuda_ipc, url };
inline constexpr std::array kTransportKinds{TransportKind::data, TransportKind::base64,   TransportKind::body,
                                            TransportKind::shm,  TransportKind::cuda_ipc, TransportKind::url};

std::string_view name_of(TransportKind transport);
std::optional<TransportKind> parse_transport(std::string_view name);

/// Transports in order of preference, and the unknown names of a list.
struct TransportList {
    std::vector<TransportKind> transports;
    std::vector<std::string> unknown;
};
/// Parses the value of Shared-Tensor-Accept or Shared-Tensor-Require: "shm, body". Drops repetitions.
TransportList parse_transports(std::string_view list);

/// Returns a list as text: "data, base64".
std::string join(const std::vector<TransportKind>& transports);

}  // namespace shared_tensor::tensor
