// Functions that keep what they were given, return it as it is, or read it late; whose memory is lost while they use
// it; and that say what tensors, devices and autograd they see.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zero.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
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
void open_gate(const std::string& gate) {
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

SHARE_AS("open", open_gate, arg("gate"), execution::inline_);
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

// They map a file over their argument and cut the file.
namespace {

constexpr std::size_t kPage = 4096;

/// From now on to touch the page at `place` (any place if null) ends in SIGBUS.
volatile char* lose_page(void* place) {
    const int file = ::memfd_create("lost", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, kPage) != 0) throw std::runtime_error("memfd_create");
    const int fixed = place != nullptr ? MAP_FIXED : 0;
    void* mapped = ::mmap(place, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | fixed, file, 0);
    if (mapped == MAP_FAILED || ::ftruncate(file, 0) != 0) throw std::runtime_error("mmap");
    ::close(file);
    return static_cast<volatile char*>(mapped);
}

std::atomic<int> runs{0};

double lose_and_sum(const at::Tensor& x) {
    ++runs;
    lose_page(x.mutable_data_ptr());
    return at::sum(x).item<double>();
}
double sum_of(const at::Tensor& x) { return at::sum(x).item<double>(); }
at::Tensor lose_and_return(const at::Tensor& x) {
    lose_page(x.mutable_data_ptr());
    return x;
}
void lose_and_write(const at::Tensor& x) { *lose_page(x.mutable_data_ptr()) = 1; }
/// Nobody has touched the lost page when this ends.
int lose(const at::Tensor& x) {
    lose_page(x.mutable_data_ptr());
    return 0;
}
void lose_and_send(const at::Tensor& x, shared_tensor::Writer<at::Tensor> items) {
    lose_page(x.mutable_data_ptr());
    items.write(x);
}
int runs_so_far() { return runs; }
char lose_elsewhere() { return *lose_page(nullptr); }

}  // namespace

SHARE(lose_and_sum, arg("x"));
SHARE_AS("lose_cached", lose_and_sum, arg("x"), cached(1h));
SHARE_AS("lose_task", lose_and_sum, arg("x"), execution::task);
SHARE(lose_and_return, arg("x"));
SHARE(lose_and_write, arg("x"));
SHARE(lose, arg("x"));
SHARE(lose_and_send, arg("x"), arg("items"));
SHARE(sum_of, arg("x"));
SHARE(runs_so_far, execution::inline_);
SHARE(lose_elsewhere);

// What a function sees of its arguments and of autograd.
namespace {

std::string dtype_of(const at::Tensor& x) { return c10::toString(x.scalar_type()); }
std::string device_of(const at::Tensor& x) { return x.device().str(); }
bool records() { return at::GradMode::is_enabled(); }
double slow(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return seconds;
}
bool fails_below(double x) {
    if (x < 0) throw std::runtime_error("below zero");
    return true;
}
void dtypes_of(shared_tensor::Reader<at::Tensor> tensors, shared_tensor::Writer<std::string> names) {
    for (const at::Tensor& tensor : tensors)
        names.write(dtype_of(tensor));
}

SHARE_AS("as_half", dtype_of, arg("x"), as_dtype("float16"));
SHARE_AS("as_it_is", dtype_of, arg("x"));
SHARE_AS("on_cpu", device_of, arg("x"), on_device("cpu"));
SHARE_AS("records", records);
SHARE_AS("records_nothing", records, no_grad());
SHARE(slow, arg("seconds"));
SHARE(fails_below, arg("x"));
SHARE(dtypes_of, arg("tensors"), arg("names"), as_dtype("float64"));

}  // namespace
