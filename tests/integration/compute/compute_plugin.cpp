#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mean.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

namespace {

std::string dtype_of(const at::Tensor& x) { return c10::toString(x.scalar_type()); }
std::string device_of(const at::Tensor& x) { return x.device().str(); }
bool records() { return at::GradMode::is_enabled(); }
double slow(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return seconds;
}
bool fails_below(double x) {
    if (x < 0) throw std::runtime_error("below zero");
    return true;
}
void dtypes_of(shared_tensor::Reader<at::Tensor> tensors, shared_tensor::Writer<std::string> names) {
    for (const at::Tensor& tensor : tensors)
        names.write(dtype_of(tensor));
}

SHARE_AS("as_half", dtype_of, arg("x"), as_dtype("float16"));
SHARE_AS("as_it_is", dtype_of, arg("x"));
SHARE_AS("on_cpu", device_of, arg("x"), on_device("cpu"));
SHARE_AS("records", records);
SHARE_AS("records_nothing", records, no_grad());
SHARE(slow, arg("seconds"));
SHARE(fails_below, arg("x"));
SHARE(dtypes_of, arg("tensors"), arg("names"), as_dtype("float64"));

}  // namespace
