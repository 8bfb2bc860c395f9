#include <shared_tensor/simulated.hpp>

#include <algorithm>
#include <charconv>
#include <span>
#include <sstream>
#include <stdexcept>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "base/system/host.hpp"
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

constexpr std::pair<std::string_view, bool Faults::*> kSwitches[]{{"reject_export", &Faults::reject_export},
                                                                  {"reject_open", &Faults::reject_open},
                                                                  {"reject_events", &Faults::reject_events},
                                                                  {"crash_at_open", &Faults::crash_at_open}};
constexpr std::pair<std::string_view, std::uint32_t Faults::*> kDelays[]{{"slow_open_ms=", &Faults::slow_open_ms},
                                                                         {"slow_close_ms=", &Faults::slow_close_ms}};

bool set_fault(Faults& faults, std::string_view word) {
    for (const auto& [name, member] : kSwitches) {
        if (word == name) return faults.*member = true;
    }
    for (const auto& [name, member] : kDelays) {
        if (!word.starts_with(name)) continue;
        const auto [end, error] = std::from_chars(word.data() + name.size(), word.data() + word.size(), faults.*member);
        return error == std::errc() && end == word.data() + word.size();
    }
    return false;
}

}  // namespace

void enable(std::size_t devices) {
    if (devices > kMaxDevices)
        throw std::invalid_argument("there are at most " + std::to_string(kMaxDevices) + " simulated devices");
    all().enable(devices);
}

std::size_t enabled() { return all().enabled(); }

std::string uuid(std::size_t device) {
    const std::string text = "simulated " + std::to_string(device) + ' ' + boot_id();
    const Sha256::Value digest = Sha256::of(std::as_bytes(std::span(text)));
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
    std::string words(text);
    std::replace(words.begin(), words.end(), ',', ' ');
    std::istringstream list(words);
    for (std::string word; list >> word;) {
        if (!set_fault(faults, word))
            throw std::invalid_argument("\"" + word +
                                        "\" is no fault of a simulated device: reject_export, reject_open, "
                                        "reject_events, crash_at_open, slow_open_ms=N, slow_close_ms=N");
    }
    return faults;
}

Statistics statistics() { return all().statistics(); }

}  // namespace shared_tensor::simulated
