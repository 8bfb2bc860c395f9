#include <shared_tensor/simulated.hpp>

#include <charconv>
#include <fstream>
#include <span>
#include <stdexcept>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "support/simulated/device.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::simulated {

namespace {

using tensor::simulated::kMaxDevices;
using tensor::simulated::SimulatedDevice;

SimulatedDevice& all() {
    tensor::add_device_kind(&SimulatedDevice::kind);
    return SimulatedDevice::of_process();
}

std::size_t checked(std::size_t device) {
    if (device < all().enabled()) return device;
    throw std::invalid_argument("simulated device " + std::to_string(device) +
                                " is not switched on: " + std::to_string(all().enabled()) + " are (simulated::enable)");
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

void set_fault(Faults& faults, std::string_view word) {
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (equals == std::string_view::npos) {
        if (name == "reject_export") return void(faults.reject_export = true);
        if (name == "reject_open") return void(faults.reject_open = true);
        if (name == "reject_events") return void(faults.reject_events = true);
        if (name == "crash_at_open") return void(faults.crash_at_open = true);
    } else {
        std::uint32_t value = 0;
        const std::string_view digits = word.substr(equals + 1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        const bool right = error == std::errc() && end == digits.data() + digits.size();
        if (right && name == "slow_open_ms") return void(faults.slow_open_ms = value);
        if (right && name == "slow_close_ms") return void(faults.slow_close_ms = value);
    }
    throw std::invalid_argument("\"" + std::string(word) +
                                "\" is no fault of a simulated device: reject_export, reject_open, reject_events, "
                                "crash_at_open, slow_open_ms=N, slow_close_ms=N");
}

}  // namespace

void enable(std::size_t devices) {
    if (devices > kMaxDevices)
        throw std::invalid_argument("there are at most " + std::to_string(kMaxDevices) + " simulated devices");
    all().enable(devices);
}

std::size_t enabled() { return all().enabled(); }

std::string uuid(std::size_t device) {
    static const std::string kBoot = [] {
        std::ifstream file("/proc/sys/kernel/random/boot_id");
        std::string text;
        file >> text;
        return text;
    }();
    const std::string text = "simulated " + std::to_string(device) + ' ' + kBoot;
    const Sha256 digest = sha256_of(std::as_bytes(std::span(text)));
    return "SIM-" + uuid_text(std::span(digest).first<16>());
}

TensorRef empty(const std::vector<std::int64_t>& shape, DType dtype, std::size_t device) {
    return all().empty(checked(device), dtype, shape);
}

TensorRef to_device(const TensorRef& tensor, std::size_t device) {
    TensorRef made = all().empty(checked(device), tensor.dtype(), tensor.shape());
    tensor::copy_elements(tensor, made.mutable_data());
    return made;
}

bool on_device(const TensorRef& tensor) { return all().holds(tensor); }

void launch(std::function<void()> work, std::size_t device) { all().launch(checked(device), std::move(work)); }
void synchronize(std::size_t device) { all().synchronize(checked(device)); }

void inject(const Faults& faults) { all().inject(faults); }

Faults parse_faults(std::string_view text) {
    Faults faults;
    while (!text.empty()) {
        const auto comma = std::min(text.find(','), text.size());
        if (const auto word = trimmed(text.substr(0, comma)); !word.empty()) set_fault(faults, word);
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return faults;
}

Statistics statistics() { return all().statistics(); }

}  // namespace shared_tensor::simulated
