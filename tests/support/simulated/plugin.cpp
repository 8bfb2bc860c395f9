// The plugin with the simulated devices: shared-tensor-server --load libshared_tensor_simulated.so. The environment
// variable SHARED_TENSOR_SIMULATED_DEVICES sets their number (default 1).

#include <shared_tensor/share.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/struct.hpp>

#include "support/simulated/device.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::simulated {

SHARED_TENSOR_FIELDS(Statistics, allocations, bytes, open, events, opened, closed, rejected, freed_while_open,
                     opened_twice, closed_twice);

namespace {

TensorRef copy_to_device(const TensorRef& x) { return to_device(x); }
void ask_for_faults(const std::string& faults) { inject(parse_faults(faults)); }

}  // namespace

SHARE_AS("simulated.to_device", copy_to_device, arg("x"),
         doc("Returns a copy of the tensor on the first simulated device."));
SHARE_AS("simulated.inject", ask_for_faults, arg("faults"),
         doc("Sets the faults of the server: \"reject_open, slow_close_ms=50\"; \"\" for none."));
SHARE_AS("simulated.statistics", statistics, doc("Returns the server's counts of simulated devices."));

}  // namespace shared_tensor::simulated

extern "C" [[gnu::visibility("default")]] const shared_tensor::tensor::DeviceKindEntry*
shared_tensor_device_kind() noexcept {
    using namespace shared_tensor;  // NOLINT(google-build-using-namespace): local
    static constexpr tensor::DeviceKindEntry kEntry{SHARED_TENSOR_VERSION, &tensor::simulated::SimulatedDevice::kind};
    if (simulated::enabled() == 0) simulated::enable(1);
    return &kEntry;
}
