#include <shared_tensor/simulated.hpp>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "support/simulated/device.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using shared_tensor::tensor::DeviceEvent;
using shared_tensor::tensor::DevicePlace;
using shared_tensor::tensor::DeviceRejected;

TEST_CASE("A tensor is on the device where its storage is", "[simulated]") {
    simulated::enable(2);
    const TensorRef x = simulated::to_device(arange<float>({12}), 1);
    CHECK(simulated::on_device(x));
    CHECK(simulated::on_device(transposed(strided(x, {3, 4})).select(2)));
    CHECK(!simulated::on_device(arange<float>({12})));
    CHECK(identical(x, arange<float>({12})));
    CHECK(simulated::on_device(simulated::empty({0, 3}, DType::float32)));
}

TEST_CASE("Devices that are not switched on give no memory", "[simulated]") {
    simulated::enable(1);
    CHECK_THROWS_AS(simulated::empty({1}, DType::float32, 1), std::invalid_argument);
    CHECK_THROWS_AS(simulated::enable(17), std::invalid_argument);
    CHECK(simulated::uuid(0) != simulated::uuid(1));
    CHECK(simulated::uuid(0).starts_with("SIM-"));
}

TEST_CASE("An allocation is gone with the last tensor in it", "[simulated]") {
    simulated::enable(1);
    const auto before = simulated::statistics();
    TensorRef row;
    {
        const TensorRef x = simulated::empty({10, 100}, DType::float64);
        row = x.select(3);
        CHECK(simulated::statistics().allocations == before.allocations + 1);
        CHECK(simulated::statistics().bytes == before.bytes + 8000);
    }
    CHECK(simulated::statistics().allocations == before.allocations + 1);
    row = {};
    CHECK(simulated::statistics().allocations == before.allocations);
}

TEST_CASE("A handle cannot be opened where it was made", "[simulated]") {
    simulated::enable(1);
    const auto& device = tensor::simulated::SimulatedDevice::of_process();
    const TensorRef x = simulated::to_device(arange<float>({12}));
    const DevicePlace place = device.place(x);
    CHECK_THROWS_AS(device.open(0, device.export_block(place), place.generation), DeviceRejected);
}

TEST_CASE("Events come from a pool that has an end, and go back to it", "[simulated]") {
    const auto& device = tensor::simulated::SimulatedDevice::of_process();
    std::vector<std::unique_ptr<DeviceEvent>> events;
    while (auto event = device.record(0))
        events.push_back(std::move(event));
    CHECK(events.size() == 1000);
    events.pop_back();
    CHECK(device.record(0) != nullptr);
    events.clear();
    CHECK(simulated::statistics().events == 0);
}

TEST_CASE("Work is done in order, and waited for by whoever reads the tensor", "[simulated]") {
    simulated::enable(1);
    const TensorRef x = simulated::empty({1}, DType::int64);
    auto* const value = reinterpret_cast<std::int64_t*>(x.mutable_data());
    for (std::int64_t i = 1; i <= 100; ++i)
        simulated::launch([value, i] { *value = *value * 3 % 1009 + i; });
    simulated::synchronize();
    std::int64_t wanted = 0;
    for (std::int64_t i = 1; i <= 100; ++i)
        wanted = wanted * 3 % 1009 + i;
    CHECK(*value == wanted);
}

TEST_CASE("Faults are told by words", "[simulated]") {
    const simulated::Faults faults = simulated::parse_faults("reject_open, slow_close_ms=50");
    CHECK(faults.reject_open);
    CHECK(faults.slow_close_ms == 50);
    CHECK(!faults.reject_export);
    CHECK_THROWS_AS(simulated::parse_faults("burn"), std::invalid_argument);
    CHECK_THROWS_AS(simulated::parse_faults("slow_open_ms=fast"), std::invalid_argument);
}
