#include <shared_tensor/simulated.hpp>

#include <catch2/catch_test_macros.hpp>

#include "support/simulated/device.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("A simulated device opens no handle of its own process, and has a pool of events with an end",
          "[simulated]") {
    simulated::enable(1);
    const auto& device = tensor::simulated::SimulatedDevice::of_process();
    const TensorRef x = simulated::to_device(arange<float>({12}));
    const tensor::DevicePlace place = device.place(x);
    CHECK_THROWS_AS(device.open(0, device.export_block(place), place.generation), tensor::DeviceRejected);
    std::vector<tensor::DeviceEvent> events;
    while (auto event = device.record(0))
        events.push_back(std::move(event));
    CHECK(events.size() == 1000);
    events.pop_back();
    CHECK(device.record(0) != nullptr);
    events.clear();
    CHECK(simulated::statistics().events == 0);
}
