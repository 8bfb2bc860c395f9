// Every run of `enter` leaves a line in the file that the variable LEDGER names. So a test counts the runs of each
// call, whichever process ran it.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <shared_tensor/share.hpp>

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

}  // namespace
