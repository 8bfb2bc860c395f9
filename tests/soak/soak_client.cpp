// A client process of the soak test: makes calls of all kinds, checks each result, and ends only if one is wrong.

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>

#include "soak/soak.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

void expect(bool good, const char* what) {
    if (!good) throw std::logic_error(what);
}

void append_line(const std::string& path, const std::string& text) {
    const std::string line = text + '\n';
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    expect(::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "a line is written");
    ::close(file);
}

class SoakClient {
public:
    SoakClient() : client_(options()), random_(static_cast<unsigned>(std::atoi(std::getenv(kSoakSeed)))) {}

    void work() {
        const std::string kind = pick(3) == 0 ? "isolated." : "own.";
        switch (pick(7)) {
            case 0:
            case 1: return record(kind + "record");
            case 2: return tensor(kind + "next");
            case 3: return task(kind + "steps");
            case 4: return stream(kind + "sums");
            case 5: return named_tensors();
            default:
                if (pick(20) == 0) crash();
        }
    }

private:
    static ClientOptions options() {
        ClientOptions made;
        made.url = std::getenv(kSoakUrl);
        return made;
    }
    int pick(int count) { return std::uniform_int_distribution(0, count - 1)(random_); }
    std::vector<std::int32_t> numbers() {
        return std::vector<std::int32_t>(static_cast<std::size_t>(1 + pick(pick(10) == 0 ? 1 << 21 : 1 << 12)),
                                         pick(1000));
    }

    void record(const std::string& method) {
        const std::string folder = std::getenv(kSoakFolder);
        const std::string key = std::to_string(::getpid()) + '-' + std::to_string(++calls_);
        CallOptions options;
        options.idempotency_key = key;
        options.timeout = 30s;
        const auto answer = client_.with(options).call<std::string>(method, calls_file(folder), key);
        expect(answer == key, "a call gets its own answer");
        append_line(answers_file(folder), key);
    }

    void tensor(const std::string& method) {
        const TensorRef x = tensor_of(numbers());
        const TensorRef y = repeating().call<TensorRef>(method, x);
        expect(y.elements() == x.elements(), "a result has its shape");
        const auto* const from = reinterpret_cast<const std::int32_t*>(x.data());
        const auto* const to = reinterpret_cast<const std::int32_t*>(y.data());
        for (std::uint64_t i = 0; i < x.elements(); ++i)
            expect(to[i] == from[i] + 1, "a result has its elements");
        kept_.push_back(y);
        if (kept_.size() > 8) kept_.pop_front();
    }

    void task(const std::string& method) {
        const int count = 1 + pick(30);
        auto task = client_.submit<int>(method, count);
        if (pick(4) == 0) {
            task.cancel();
        } else {
            expect(task.get() == count, "a task has its result");
        }
    }

    void stream(const std::string& method) {
        auto call = client_.stream<std::int64_t>(method);
        auto writer = call.writer<std::int64_t>("numbers");
        auto reader = call.reader<std::int64_t>("sums");
        std::int64_t sum = 0;
        for (std::int64_t i = 1, count = 1 + pick(200); i <= count; ++i) {
            writer.write(i);
            expect(reader.next() == (sum += i), "an item is the next one");
        }
        writer.end();
        expect(call.result() == sum, "a stream has its result");
    }

    void named_tensors() {
        const NamedTensors names(repeating());
        const std::string name = "soak-" + std::to_string(pick(4));
        const std::vector<std::int32_t> all = numbers();
        names.put(name, tensor_of(all));
        const NamedTensor read = names.get(name);
        const auto* const elements = reinterpret_cast<const std::int32_t*>(read.tensor().data());
        for (std::uint64_t i = 0; i < read.tensor().elements(); ++i)
            expect(elements[i] == elements[0], "a named tensor is one version");
    }

    void crash() {
        try {
            client_.call("isolated.die");
            expect(false, "a process that ends gives no answer");
        } catch (const FunctionFailed&) {
        }
    }

    Client repeating() const {
        CallOptions options;
        options.idempotent = true;
        return client_.with(options);
    }

    const Client client_;
    std::mt19937 random_;
    std::uint64_t calls_ = 0;
    std::deque<TensorRef> kept_;  ///< leases
};

}  // namespace

/// Errors are expected: the daemon is restarted, and worker processes end. Wrong results are not.
TEST_CASE("role: soak client", "[.role]") {
    if (std::getenv(kSoakUrl) == nullptr) SKIP("a role of a second process: the test of this program starts it");
    SoakClient client;
    for (;;) {
        try {
            client.work();
        } catch (const RpcError&) {
        }
    }
}
