#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "support/simulated/device.hpp"

using namespace shared_tensor;
using shared_tensor::tensor::DeviceEvent;
using shared_tensor::tensor::DevicePlace;
using shared_tensor::tensor::DeviceRejected;

TEST_CASE("A tensor is on the device where its storage is", "[simulated]") {
    simulated::enable(2);
    const at::Tensor x = simulated::to_device(at::arange(12, at::kFloat), 1);
    CHECK(simulated::on_device(x));
    CHECK(simulated::on_device(x.view({3, 4}).t()[2]));
    CHECK(!simulated::on_device(x.clone()));
    CHECK(!simulated::on_device(at::zeros({3})));
    CHECK(at::equal(x, at::arange(12, at::kFloat)));
    CHECK(simulated::on_device(simulated::empty({0, 3}, at::kFloat)));
}

TEST_CASE("Devices that are not switched on give no memory", "[simulated]") {
    simulated::enable(1);
    CHECK_THROWS_AS(simulated::empty({1}, at::kFloat, 1), std::invalid_argument);
    CHECK_THROWS_AS(simulated::enable(17), std::invalid_argument);
    CHECK(simulated::uuid(0) != simulated::uuid(1));
    CHECK(simulated::uuid(0).starts_with("SIM-"));
}

TEST_CASE("An allocation is gone with the last tensor in it", "[simulated]") {
    simulated::enable(1);
    const auto before = simulated::statistics();
    at::Tensor row;
    {
        const at::Tensor x = simulated::empty({10, 100}, at::kDouble);
        row = x[3];
        CHECK(simulated::statistics().allocations == before.allocations + 1);
        CHECK(simulated::statistics().bytes == before.bytes + 8000);
    }
    CHECK(simulated::statistics().allocations == before.allocations + 1);
    row = at::Tensor();
    CHECK(simulated::statistics().allocations == before.allocations);
}

TEST_CASE("A handle cannot be opened where it was made", "[simulated]") {
    simulated::enable(1);
    const auto& device = tensor::simulated::SimulatedDevice::of_process();
    const at::Tensor x = simulated::to_device(at::arange(12, at::kFloat));
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
    const at::Tensor x = simulated::empty({1}, at::kLong);
    for (std::int64_t i = 1; i <= 100; ++i)
        simulated::launch([x, i] { x[0] = x[0].item<std::int64_t>() * 3 % 1009 + i; });
    simulated::synchronize();
    std::int64_t wanted = 0;
    for (std::int64_t i = 1; i <= 100; ++i)
        wanted = wanted * 3 % 1009 + i;
    CHECK(x.item<std::int64_t>() == wanted);
}

TEST_CASE("Faults are told by words", "[simulated]") {
    const simulated::Faults faults = simulated::parse_faults("reject_open, slow_close_ms=50");
    CHECK(faults.reject_open);
    CHECK(faults.slow_close_ms == 50);
    CHECK(!faults.reject_export);
    CHECK_THROWS_AS(simulated::parse_faults("burn"), std::invalid_argument);
    CHECK_THROWS_AS(simulated::parse_faults("slow_open_ms=fast"), std::invalid_argument);
}
