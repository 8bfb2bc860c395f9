#include <shared_tensor/simulated.hpp>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "support/simulated/device.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("A tensor is on a simulated device where its storage is, and the storage goes with its last view",
          "[simulated]") {
    simulated::enable(2);
    const auto before = simulated::statistics();
    TensorRef row;
    {
        const TensorRef x = simulated::to_device(arange<float>({12}), 1);
        CHECK(simulated::on_device(x));
        CHECK(identical(x, arange<float>({12})));
        CHECK(simulated::statistics().bytes == before.bytes + 48);
        row = transposed(strided(x, {3, 4})).select(2);
    }
    CHECK(simulated::on_device(row));
    CHECK(simulated::statistics().allocations == before.allocations + 1);
    row = {};
    CHECK(simulated::statistics().allocations == before.allocations);
    CHECK_FALSE(simulated::on_device(arange<float>({12})));
    CHECK(simulated::on_device(simulated::empty({0, 3}, DType::float32)));
    simulated::enable(1);
    CHECK_THROWS_AS(simulated::empty({1}, DType::float32, 1), std::invalid_argument);
    CHECK_THROWS_AS(simulated::enable(17), std::invalid_argument);
    CHECK(simulated::uuid(0) != simulated::uuid(1));
    CHECK(simulated::uuid(0).starts_with("SIM-"));
}

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

TEST_CASE("Faults are told by words", "[simulated]") {
    const simulated::Faults faults = simulated::parse_faults("reject_open, slow_close_ms=50");
    CHECK(faults.reject_open);
    CHECK(faults.slow_close_ms == 50);
    CHECK(!faults.reject_export);
    CHECK_THROWS_AS(simulated::parse_faults("burn"), std::invalid_argument);
    CHECK_THROWS_AS(simulated::parse_faults("slow_open_ms=fast"), std::invalid_argument);
}
