// The functions of the soak test. The plugin is built twice: for the server's own process, and for worker processes.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <shared_tensor/share.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/tensor_ref.hpp>

namespace {

using namespace shared_tensor;

/// Appends a line to a file: the test counts how often each call has run.
std::string record(const std::string& path, const std::string& key) {
    const std::string line = key + '\n';
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    const bool written = ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    ::close(file);
    if (!written) throw std::runtime_error("the line was not written");
    return key;
}

TensorRef next(const TensorRef& x) {
    const TensorRef made = empty_in_shared_memory(x.shape(), x.dtype());
    const auto* const from = reinterpret_cast<const std::int32_t*>(x.data());
    auto* const to = reinterpret_cast<std::int32_t*>(made.mutable_data());
    for (std::uint64_t i = 0; i < x.elements(); ++i)
        to[i] = from[i] + 1;
    return made;
}

int steps(Context& context, int count) {
    for (int i = 0; i < count; ++i) {
        context.progress(static_cast<double>(i) / count);
        if (!context.sleep_for(std::chrono::milliseconds(1))) throw CancelledError();
    }
    return count;
}

std::int64_t sums(Reader<std::int64_t> numbers, Writer<std::int64_t> sums) {
    std::int64_t sum = 0;
    for (const std::int64_t number : numbers)
        sums.write(sum += number);
    return sum;
}

void die() { std::abort(); }

}  // namespace

SHARE_AS(SOAK_PREFIX "record", record, arg("path"), arg("key"));
SHARE_AS(SOAK_PREFIX "next", next, arg("x"));
SHARE_AS(SOAK_PREFIX "steps", steps, arg("count"));
SHARE_AS(SOAK_PREFIX "sums", sums, arg("numbers"), arg("sums"));
SHARE_AS(SOAK_PREFIX "die", die);
