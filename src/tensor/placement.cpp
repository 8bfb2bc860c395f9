#include "tensor/placement.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Device.h>

#include <stdexcept>

#include "tensor/at_tensor.hpp"
#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

namespace {

std::optional<c10::Device> parse_device(std::string_view text) {
    try {
        return c10::Device(std::string(text));
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

}  // namespace

codec::TensorPointer placed(const codec::TensorPointer& handle, std::string_view device, std::string_view dtype) {
    const at::Tensor& tensor = handle->tensor();
    at::TensorOptions wanted = tensor.options();
    if (!device.empty()) wanted = wanted.device(c10::Device(std::string(device)));
    if (const auto known = dtype.empty() ? std::nullopt : parse_dtype(dtype); known && tensor.is_floating_point())
        wanted = wanted.dtype(scalar_type(*known));
    if (wanted.device() == tensor.device() && wanted.dtype() == tensor.dtype()) return handle;
    return make_plain_handle(tensor.to(wanted));
}

std::string fault_of_placement(std::string_view device, std::string_view dtype) {
    if (!dtype.empty()) {
        const auto known = parse_dtype(dtype);
        if (!known || !c10::isFloatingType(scalar_type(*known)))
            return "the dtype \"" + std::string(dtype) + "\" is none of floating-point numbers, such as float32";
    }
    if (device.empty() || device == "cpu") return {};
    const auto parsed = parse_device(device);
    if (!parsed || !parsed->is_cuda()) return "the device \"" + std::string(device) + "\" is not cpu, cuda or cuda:N";
    if (!at::hasCUDA()) return "the device " + std::string(device) + " cannot be used: this process has no CUDA";
    const int count = at::detail::getCUDAHooks().deviceCount();
    if (parsed->has_index() && parsed->index() >= count)
        return "the device " + std::string(device) + " is not there: there are " + std::to_string(count);
    return {};
}

std::shared_ptr<void> without_grad() { return std::make_shared<at::NoGradGuard>(); }

}  // namespace shared_tensor::tensor
