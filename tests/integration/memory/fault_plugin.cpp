// Functions whose memory is lost while they use it: they map a file over it and cut the file.

#include <ATen/core/Tensor.h>
#include <ATen/ops/sum.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

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
