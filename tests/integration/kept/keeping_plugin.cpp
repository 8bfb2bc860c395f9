// Functions that keep what they were given, return it as it is, or read it late.

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/zero.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <shared_tensor/object.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

namespace {

struct Gate {
    int waiting = 0;
    bool open = false;
};
struct Known {
    std::mutex mutex;
    std::map<std::string, Gate> gates;
    std::map<std::string, at::Tensor> tensors;
};
Known& known() {
    static auto* known = new Known;
    return *known;
}
template <class Use>
auto with_known(Use use) {
    const std::lock_guard hold(known().mutex);
    return use(known());
}

/// Until open(gate), whether the call is still wanted or not.
void wait_at(const std::string& gate) {
    with_known([&](Known& all) { ++all.gates[gate].waiting; });
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!with_known([&](Known& all) { return all.gates[gate].open; })) {
        if (std::chrono::steady_clock::now() > end) throw std::runtime_error("nobody opened the gate");
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}
void open(const std::string& gate) {
    with_known([&](Known& all) { all.gates[gate].open = true; });
}
int waiting(const std::string& gate) {
    return with_known([&](Known& all) { return all.gates[gate].waiting; });
}

at::Tensor same(const at::Tensor& x) { return x; }
at::Tensor half(const at::Tensor& x) { return x.narrow(0, 0, x.size(0) / 2); }
at::Tensor same_behind(const at::Tensor& x, const std::string& gate) {
    wait_at(gate);
    return x;
}

void keep(const at::Tensor& x, const std::string& name) {
    with_known([&](Known& all) { all.tensors[name] = x; });
}
void keep_behind(const at::Tensor& x, const std::string& name, const std::string& gate) {
    wait_at(gate);
    keep(x.clone(), name);
}
at::Tensor kept(const std::string& name) {
    return with_known([&](Known& all) { return all.tensors[name]; });
}
void keep_last(shared_tensor::Reader<at::Tensor> items, const std::string& name) {
    while (const auto item = items.next())
        keep(*item, name);
}

struct Box {
    at::Tensor content;
};

/// The same memory for all, written to by those who get it.
at::Tensor board(const std::string& name, std::int64_t count) {
    return with_known([&](Known& all) {
        at::Tensor& board = all.tensors[name];
        if (!board.defined()) board = shared_tensor::empty_in_writable_shared_memory({count}, at::kFloat).zero_();
        return board;
    });
}
/// A buffer that the function fills anew and returns each time.
at::Tensor buffer(const std::string& name, std::int64_t count, double value) {
    return with_known([&](Known& all) {
        at::Tensor& buffer = all.tensors[name];
        if (!buffer.defined()) buffer = shared_tensor::empty_in_shared_memory({count}, at::kFloat);
        return buffer.fill_(value);
    });
}
at::Tensor made(std::int64_t count, double value) {
    return shared_tensor::empty_in_shared_memory({count}, at::kFloat).fill_(value);
}

}  // namespace

SHARED_TENSOR_OBJECT("test.box", Box);

namespace {

using shared_tensor::Shared;

Shared<Box> box(const at::Tensor& x) { return shared_tensor::make_shared_object<Box>(Box{x}); }
at::Tensor content(const Shared<const Box>& box) { return box->content; }

}  // namespace

SHARE(open, arg("gate"), execution::inline_);
SHARE(waiting, arg("gate"), execution::inline_);
SHARE(same, arg("x"));
SHARE(half, arg("x"));
SHARE_AS("same_cached", same, arg("x"), cached(1h));
SHARE(same_behind, arg("x"), arg("gate"));
SHARE_AS("same_cached_behind", same_behind, arg("x"), arg("gate"), cached(1h));
SHARE(keep, arg("x"), arg("name"));
SHARE(keep_behind, arg("x"), arg("name"), arg("gate"));
SHARE(kept, arg("name"));
SHARE(keep_last, arg("items"), arg("name"));
SHARE(box, arg("x"));
SHARE(content, arg("box"));
SHARE(board, arg("name"), arg("count"));
SHARE_AS("board_cached", board, arg("name"), arg("count"), cached(1h));
SHARE(buffer, arg("name"), arg("count"), arg("value"));
SHARE(made, arg("count"), arg("value"));
