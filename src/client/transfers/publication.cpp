#include "client/transfers/publication.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "client/local/shared_memory.hpp"
#include "tensor/files/immutable_set.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::client {

namespace {

using tensor::Manifest;
using tensor::TensorMap;
using tensor::TensorSet;

/// Takes memory that is shared with the server if possible, so that the tensors are sent without a copy.
tensor::TakeBlock block_from(const Core& core) {
    return [&core](std::uint64_t bytes) {
        try {
            if (const auto memory = core.ports().memory()) {
                auto segment = memory->take(bytes);
                std::byte* const data = segment->segment().data();
                return tensor::Block{data, std::move(segment)};
            }
        } catch (const tensor::CannotLend&) {  // more than this process shares at once
        }
        return tensor::plain_block(bytes);
    };
}

/// The shared memory in which `bytes` bytes are published without a copy by the server; null if there is none.
std::shared_ptr<SharedMemory> memory_for(const Core& core, std::uint64_t bytes) {
    auto memory = bytes >= kMinImmutable ? core.ports().memory() : nullptr;
    return memory != nullptr && memory->viable() ? memory : nullptr;
}

tensor::TakeImmutable handed_over(SharedMemory& memory) {
    return [&memory](local::ImmutableMemory& written) { return memory.hand_over(written); };
}

/// The tensors as a view of the segment that all of them lie in. Nullopt if they lie elsewhere too, or far apart.
std::optional<TensorSet> set_in_place(const SharedMemory& memory, TensorMap& tensors) {
    const auto span = tensor::span_of(tensors);
    if (!span) return std::nullopt;
    const auto place = memory.find(span->data(), span->size());
    if (!place || span->size() > place->segment->segment().size() - place->offset) return std::nullopt;
    return tensor::set_in_place(std::move(tensors), *span);
}

std::uint64_t bytes_of(const Manifest& manifest) {
    return std::accumulate(manifest.begin(), manifest.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& one) { return sum + one.second.bytes; });
}

/// The result of `write`. Nullopt if this process has no memory or no descriptor for it: the tensors are then sent from
/// other memory.
template <class Write>
auto if_possible(Write write) -> std::optional<decltype(write())> {
    try {
        return write();
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    return std::nullopt;
}

Publication one_tensor(codec::TensorPointer tensor, std::uint64_t copied) {
    return {std::move(tensor), {}, {}, copied};
}
Publication a_set(TensorSet set, std::uint64_t copied) { return {nullptr, std::move(set), {}, copied}; }

}  // namespace

std::uint64_t bytes_of(const TensorMap& tensors) {
    return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& one) { return sum + one.second->bytes(); });
}

std::optional<Publication> publication_in_place(const Core& core, const codec::TensorPointer& tensor) {
    const auto memory = memory_for(core, tensor->bytes());
    if (memory == nullptr || !tensor::is_plain(tensor) || !memory->find(tensor->tensor().data(), tensor->bytes()))
        return std::nullopt;
    memory->seal(tensor->tensor().data(), tensor->bytes());
    return one_tensor(tensor, 0);
}

std::optional<Publication> publication_in_place(const Core& core, TensorMap& tensors) {
    const auto memory = memory_for(core, bytes_of(tensors));
    auto set = memory != nullptr ? set_in_place(*memory, tensors) : std::nullopt;
    if (!set) return std::nullopt;
    memory->seal(set->data->tensor().data(), set->data->bytes());
    return a_set(std::move(*set), 0);
}

Publication publication_by_copy(const Core& core, const codec::TensorPointer& tensor) {
    const auto memory = memory_for(core, tensor->bytes());
    if (memory == nullptr || tensor->on_device()) return one_tensor(tensor, 0);
    auto copy = if_possible([&] { return tensor::write_tensor(tensor, handed_over(*memory)); });
    return copy ? one_tensor(std::move(*copy), tensor->bytes()) : one_tensor(tensor, 0);
}

Publication publication_by_copy(const Core& core, const TensorMap& tensors) {
    const std::uint64_t bytes = bytes_of(tensors);
    if (const auto memory = memory_for(core, bytes)) {
        if (auto set = if_possible([&] { return tensor::write_set(tensors, handed_over(*memory)); }))
            return a_set(std::move(*set), bytes);
    }
    return a_set(tensor::gather_set(tensors, block_from(core)), bytes);
}

Publication publication_of_file(const Core& core, const std::string& path) {
    auto source = tensor::open_safetensors(path);
    std::optional<tensor::SafetensorsContent> content;
    if (const auto memory = memory_for(core, bytes_of(source.header.manifest)))
        content = if_possible([&] { return tensor::write_file(std::move(source), handed_over(*memory)); });
    if (!content) content = tensor::read_safetensors_file(path, block_from(core));
    return {nullptr, std::move(content->set), std::move(content->metadata), 0};
}

}  // namespace shared_tensor::client
