#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::tensor {

/// How a tensor's bytes are had: the member of the descriptor that says so.
enum class Way : std::uint8_t { data, base64, body, shm, cuda_ipc, url };
inline constexpr std::array kWays{Way::data, Way::base64, Way::body, Way::shm, Way::cuda_ipc, Way::url};

std::string_view name_of(Way way);
std::optional<Way> parse_way(std::string_view name);

/// Ways in order of wish, and words that are none.
struct Wishes {
    std::vector<Way> ways;
    std::vector<std::string> unknown;
};
/// A list as it stands in Shared-Tensor-Accept and Shared-Tensor-Require: "shm, body". Repetitions are dropped.
Wishes parse_ways(std::string_view list);

/// "data, base64"
std::string join(const std::vector<Way>& ways);

}  // namespace shared_tensor::tensor
