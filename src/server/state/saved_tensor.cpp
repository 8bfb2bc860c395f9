#include "server/state/saved_tensor.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "local/segments/immutable_memory.hpp"
#include "tensor/handle.hpp"
#include "tensor/layout.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::server {

namespace {

using codec::Json;

/// Smaller tensors are written into the record: a descriptor costs the manager more.
constexpr std::uint64_t kMostInRecord = 64 << 10;

Json describe(const TensorRef& tensor) {
    return {{"dtype", name_of(tensor.dtype())}, {"shape", tensor::Shape(tensor.shape().begin(), tensor.shape().end())}};
}

/// Nobody writes to the memory any more: the process that made it has ended. Its mappings may outlive it for a moment,
/// while another process reads its files in /proc, as ps and monitors do. Blocks until they end, or until `latest`.
void make_immutable(const UniqueFd& memory, SteadyTime latest) {
    while (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) != 0 && errno != EPERM) {
        if (errno != EBUSY) throw std::system_error(errno, std::generic_category(), "its memory cannot be sealed");
        if (real_clock().now() >= latest)
            throw std::runtime_error("another process, such as a fork of the earlier server, still has its memory");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!local::is_immutable(memory)) throw std::runtime_error("its memory is not sealed");
}

}  // namespace

std::shared_ptr<const SavedTensor> TensorSaver::save(const codec::TensorPointer& tensor) const {
    if (tensor->on_device()) throw NotStored("a tensor on a GPU ends with the process");
    const TensorRef& elements = tensor->tensor();
    const bool may_stay = tensor->bytes() > kMostInRecord && elements.is_contiguous();
    const auto place = may_stay ? pool_->find(elements.data()) : std::nullopt;
    if (!place) return std::make_shared<const SavedTensor>(copy(tensor));
    SavedTensor saved{describe(elements), store_->keep(place->segment->segment().descriptor())};
    saved.record["memory"] = saved.memory->name();
    saved.record["size"] = place->segment->segment().size();
    saved.record["offset"] = place->offset;
    return std::make_shared<const SavedTensor>(std::move(saved));
}

SavedTensor TensorSaver::copy(const codec::TensorPointer& tensor) const {
    const tensor::Dense dense = tensor::dense(tensor->tensor());
    SavedTensor saved{describe(dense.tensor), nullptr};
    if (dense.bytes.size() <= kMostInRecord) {
        const auto* const first = reinterpret_cast<const std::uint8_t*>(dense.bytes.data());
        saved.record["elements"] = Json::binary({first, first + dense.bytes.size()});
        return saved;
    }
    local::ImmutableMemory memory(dense.bytes.size());
    memory.append(dense.bytes);
    saved.record["size"] = memory.size();
    saved.memory = store_->keep(memory.seal());
    saved.record["memory"] = saved.memory->name();
    saved.record["offset"] = 0;
    return saved;
}

TensorSaver::Restored TensorSaver::restore(const Json& record, const std::string& owner) const {
    const auto dtype = parse_dtype(record.at("dtype").get<std::string>());
    if (!dtype) throw std::runtime_error("it has a dtype that this version does not know");
    const auto shape = record.at("shape").get<tensor::Shape>();
    SavedTensor saved{record, nullptr};
    MemoryBlock block;
    if (const auto elements = record.find("elements"); elements != record.end()) {
        const auto& bytes = elements->get_binary();
        block = tensor::plain_block(std::max<std::size_t>(bytes.size(), 1));
        if (!bytes.empty()) std::memcpy(block.data, bytes.data(), bytes.size());
    } else {
        saved.memory = store_->take(record.at("memory").get<std::string>());
        if (saved.memory == nullptr) throw std::runtime_error("the service manager has not kept its memory");
        make_immutable(*saved.memory->descriptor(), latest_);
        auto segment = pool_->adopt(saved.memory->descriptor(), record.at("size").get<std::size_t>(), owner);
        block = {segment->data() + record.at("offset").get<std::uint64_t>(), segment};
    }
    codec::TensorPointer tensor = tensor::make_handle(tensor::view_of(block.data, block.owner, *dtype, shape, {}));
    return {std::move(tensor), std::make_shared<const SavedTensor>(std::move(saved))};
}

Json TensorSaver::save(const runtime::CallOutcome& outcome, Memory& memory) const {
    if (const json_rpc::Error* error = outcome.error())
        return {{"error", {{"code", error->code}, {"message", error->message}, {"data", error->data}}}};
    const codec::Value& value = *outcome.value();
    if (const auto use = store_->use(); !value.tensors.empty() && use.descriptors > use.most / 2)
        throw NotStored(
            "more than half of the " + std::to_string(use.most) +
            " descriptors that the service manager keeps are in use; the others are left for named tensors");
    if (!value.objects.empty()) throw NotStored("objects end with the process");
    Json tensors = Json::array();
    for (const codec::TensorPointer& one : value.tensors) {
        if (one->on_device()) throw NotStored("a tensor on a GPU ends with the process");
        SavedTensor saved = copy(one);
        tensors.push_back(std::move(saved.record));
        if (saved.memory != nullptr) memory.push_back(std::move(saved.memory));
    }
    return {{"json", value.json}, {"tensors", std::move(tensors)}};
}

runtime::OutcomePointer TensorSaver::restore(const Json& record, const std::string& owner, Memory& memory) const {
    if (const auto error = record.find("error"); error != record.end())
        return runtime::make_outcome(
            json_rpc::Error{error->at("code").get<int>(), error->at("message").get<std::string>(), error->at("data")});
    codec::Value value;
    value.json = record.at("json");
    for (const Json& one : record.at("tensors")) {
        auto [tensor, saved] = restore(one, owner);
        value.tensors.push_back(tensor::make_kept_handle(tensor));
        if (saved->memory != nullptr) memory.push_back(saved->memory);
    }
    return runtime::make_outcome(std::move(value));
}

}  // namespace shared_tensor::server
