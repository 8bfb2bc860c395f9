#include "protocol/codec/lent_memory.hpp"

#include <exception>
#include <iterator>
#include <new>
#include <utility>

namespace shared_tensor::codec {

void LentForCall::add(std::vector<Memory> memory) {
    constexpr std::size_t kMany = 256;  // a stream adds any number of them, and most expire soon
    memory_.with([&](std::vector<Memory>& held) {
        if (held.size() >= kMany) std::erase_if(held, [](const Memory& one) { return one.expired(); });
        held.insert(held.end(), std::make_move_iterator(memory.begin()), std::make_move_iterator(memory.end()));
    });
}

std::vector<std::shared_ptr<LentMemory>> LentForCall::in_use() const {
    std::vector<std::shared_ptr<LentMemory>> found;
    memory_.with([&](const std::vector<Memory>& held) {
        for (const Memory& one : held) {
            if (auto memory = one.lock()) found.push_back(std::move(memory));
        }
    });
    return found;
}

std::uint64_t LentForCall::take_over() const {
    std::uint64_t copied = 0;
    std::exception_ptr failed;  // the other tensors are taken over even if one fails
    for (const auto& memory : in_use()) {
        try {
            copied += memory->take_over();
        } catch (const std::bad_alloc&) {
            failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
    return copied;
}

}  // namespace shared_tensor::codec
