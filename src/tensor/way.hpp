#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::tensor {

/// The transport of a tensor's bytes: the name of the descriptor's member that refers to them.
enum class Way : std::uint8_t { data, base64, body, shm, cuda_ipc, url };
inline constexpr std::array kWays{Way::data, Way::base64, Way::body, Way::shm, Way::cuda_ipc, Way::url};

std::string_view name_of(Way way);
std::optional<Way> parse_way(std::string_view name);

/// Transports in order of preference, and the unknown names of a list.
struct Wishes {
    std::vector<Way> ways;
    std::vector<std::string> unknown;
};
/// Parses the value of Shared-Tensor-Accept or Shared-Tensor-Require: "shm, body". Drops repetitions.
Wishes parse_ways(std::string_view list);

/// Returns a list as text: "data, base64".
std::string join(const std::vector<Way>& ways);

}  // namespace shared_tensor::tensor
