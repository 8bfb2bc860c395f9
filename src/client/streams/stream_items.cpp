#include "client/streams/stream_items.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace shared_tensor::client {

std::vector<std::string> leases_in(const streams::Item& item) {
    std::vector<std::string> leases;
    if (item.value == nullptr || !item.value->is_structured()) return leases;
    codec::for_each_placeholder(*item.value, [&](const codec::Json& place) {
        const codec::Json& descriptor = place.begin().value();
        const auto lease = descriptor.is_object() ? descriptor.find("lease") : descriptor.end();
        if (descriptor.is_object() && lease != descriptor.end() && lease->is_string())
            leases.push_back(lease->get<std::string>());
    });
    return leases;
}

void abandon(const streams::Item& item, Core& core) noexcept {
    try {
        if (const auto leases = leases_in(item); !leases.empty()) core.ports().abandon(leases);
        if (item.value == nullptr || !item.value->is_structured()) return;
        AnsweredObjects objects(core.objects_of_answers());  // its destructor releases what it has adopted
        codec::for_each_placeholder(*item.value, [&](const codec::Json& place) {
            if (place.begin().key() == "$object") objects.object(place.begin().value());
        });
    } catch (const std::exception&) {  // no memory, or not a handle: the object ends with its session
    }
}

void LentItems::add(std::string stream, std::uint64_t item, std::unique_ptr<OutgoingTensors> tensors) {
    lent_.with([&](auto& lent) { lent.push_back({std::move(stream), item, std::move(tensors)}); });
}

void LentItems::taken(std::string_view stream, std::uint64_t items) {
    std::vector<Lent> done;  // destroyed outside the lock
    lent_.with([&](std::vector<Lent>& lent) {
        const auto first = std::stable_partition(
            lent.begin(), lent.end(), [&](const Lent& one) { return one.stream != stream || one.item >= items; });
        done.assign(std::make_move_iterator(first), std::make_move_iterator(lent.end()));
        lent.erase(first, lent.end());
    });
    for (const Lent& one : done)
        one.tensors->answered();
}

void LentItems::all_taken() {
    const std::vector<Lent> done = lent_.with([](auto& lent) { return std::exchange(lent, {}); });
    for (const Lent& one : done)
        one.tensors->answered();
}

}  // namespace shared_tensor::client
