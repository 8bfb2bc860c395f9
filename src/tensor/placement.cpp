#include "tensor/placement.hpp"

#include <charconv>
#include <optional>

#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

namespace {

/// Returns N of "cuda:N", 0 for "cuda", nullopt for any other text.
std::optional<std::size_t> ordinal_in(std::string_view device) {
    constexpr std::string_view kCuda = "cuda";
    if (device == kCuda) return 0;
    if (!device.starts_with(kCuda) || device.substr(kCuda.size(), 1) != ":") return std::nullopt;
    const std::string_view digits = device.substr(kCuda.size() + 1);
    std::size_t ordinal = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    return whole ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

std::string rejection_of_placement(std::string_view device, std::string_view dtype) {
    if (!dtype.empty()) {
        const auto known = parse_dtype(dtype);
        if (!known || !is_floating_point(*known))
            return "the dtype \"" + std::string(dtype) + "\" is not a floating-point dtype, such as float32";
    }
    if (device.empty() || device == "cpu") return {};
    const auto ordinal = ordinal_in(device);
    if (!ordinal) return "the device \"" + std::string(device) + "\" is not cpu, cuda or cuda:N";
    const std::size_t count = count_of_gpus();
    if (count == 0) return "the device " + std::string(device) + " cannot be used: this process has no CUDA";
    if (*ordinal >= count)
        return "the device " + std::string(device) + " is not there: there are " + std::to_string(count);
    return {};
}

}  // namespace shared_tensor::tensor
