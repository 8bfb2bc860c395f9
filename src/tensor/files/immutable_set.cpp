#include "tensor/files/immutable_set.hpp"

#include <utility>

#include "tensor/element_reader.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

void append(local::ImmutableMemory& memory, const codec::TensorPointer& tensor) {
    if (tensor->bytes() == 0) return;
    ElementPieces pieces{ElementReader(tensor)};
    for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next())
        memory.append(piece);
}

/// `write(name, memory)` appends the elements of a member.
template <class Write>
TensorSet written(Manifest manifest, const TakeImmutable& take, Write write) {
    const std::uint64_t bytes = lay_out(manifest);
    local::ImmutableMemory memory(bytes);
    for (const auto& [name, member] : manifest) {
        memory.pad(member.offset);
        if (member.bytes > 0) write(name, memory);
    }
    return set_in(take(memory), bytes, std::move(manifest));
}

}  // namespace

TensorSet write_set(const TensorMap& tensors, const TakeImmutable& take) {
    return written(manifest_of(tensors), take, [&](const std::string& name, local::ImmutableMemory& memory) {
        append(memory, tensors.find(name)->second);
    });
}

codec::TensorPointer write_tensor(const codec::TensorPointer& tensor, const TakeImmutable& take) {
    local::ImmutableMemory memory(tensor->bytes());
    append(memory, tensor);
    return tensor_in(take(memory), tensor);
}

SafetensorsContent write_file(SafetensorsSource source, const TakeImmutable& take) {
    TensorSet set = written(source.header.manifest, take, [&](const std::string& name, local::ImmutableMemory& memory) {
        const std::uint64_t bytes = source.header.manifest.find(name)->second.bytes;
        if (memory.append_file(source.file, source.offset_of(name), bytes) < bytes) source.fail_shorter();
    });
    source.check_bools(set);
    return {std::move(set), std::move(source.header.metadata)};
}

}  // namespace shared_tensor::tensor
