// Every run of `enter` leaves a line in the file that the variable LEDGER names. So a test counts the runs of each
// call, whichever process ran it.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/share.hpp>
#include <shared_tensor/tensor_ref.hpp>

namespace {

std::string enter(const std::string& name, double seconds) {
    const int file = ::open(std::getenv("LEDGER"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    const std::string line = name + '\n';
    const bool written = file >= 0 && ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (file >= 0) ::close(file);
    if (!written) throw std::runtime_error("cannot write to the file that LEDGER names");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return name;
}

// It takes some time, so that a restart meets calls in flight.
SHARE(enter, arg("name"), arg("seconds") = 0.002, doc("Writes a line to the ledger."));

std::string enter_again(const std::string& name, double seconds) { return enter(name, seconds); }
SHARE(enter_again, idempotent(), arg("name"), arg("seconds") = 0.002, doc("The same; may be repeated."));

void refuse(const std::string& why) { throw std::runtime_error(why); }
SHARE(refuse, doc("Fails."));

void fork_for(double seconds) {
    if (::fork() != 0) return;
    ::usleep(static_cast<useconds_t>(seconds * 1e6));
    ::_exit(0);
}
SHARE(fork_for, arg("seconds"), doc("Forks a process that only sleeps, with all of the server's memory."));

shared_tensor::TensorRef count_up(std::int64_t count) {
    auto numbers = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(count));
    std::iota(numbers->begin(), numbers->end(), 0);
    return {numbers->data(), shared_tensor::DType::int32, {count}, {}, {}, numbers};
}
SHARE(count_up, doc("A tensor of the numbers below count."));

}  // namespace
