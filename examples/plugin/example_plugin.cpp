// A plugin: functions that any process can call once a server has loaded it.
//
//     shared-tensor-server --load libexample_plugin.so
//     shared-tensor call add 1 2

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/json.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/torch.hpp>

#include "vocabulary.hpp"

namespace {

nlohmann::json echo(nlohmann::json value) { return value; }

double add(double a, double b) { return a + b; }

/// Sleeps in small steps, so that it can be cancelled soon and callers see its progress.
double sleep_for(shared_tensor::Context& context, double seconds) {
    using Seconds = std::chrono::duration<double>;
    const auto start = std::chrono::steady_clock::now();
    for (double slept = 0; slept < seconds;) {
        context.progress(slept / seconds, "sleeping");
        const double step = std::min(0.05, seconds - slept);
        if (!context.sleep_for(std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(step)))) break;
        slept = Seconds(std::chrono::steady_clock::now() - start).count();
    }
    context.check_cancelled();
    context.progress(1.0);
    return Seconds(std::chrono::steady_clock::now() - start).count();
}

void fail(const std::string& message) { throw std::runtime_error(message); }

at::Tensor scale(const at::Tensor& x, double factor) { return at::mul(x, factor); }

/// The tensor is made in shared memory, so returning it copies nothing.
at::Tensor ramp(std::int64_t count) {
    at::Tensor numbers = shared_tensor::empty_in_shared_memory({count}, at::kFloat);
    return at::arange_out(numbers, count);
}

/// at::mul allocates its own result; the scope makes it allocate in shared memory.
at::Tensor scaled_ramp(std::int64_t count, double factor) {
    const at::Tensor numbers = at::arange(count, at::kFloat);
    const shared_tensor::SharedMemoryScope scope;
    return at::mul(numbers, factor);
}

/// Returns the same tensor to each caller; it stays in the daemon.
at::Tensor held_ramp(std::int64_t count) {
    static std::mutex mutex;
    static std::map<std::int64_t, at::Tensor> held;
    const std::lock_guard lock(mutex);
    at::Tensor& numbers = held[count];
    if (!numbers.defined()) numbers = ramp(count);
    return numbers;
}

/// A tensor that all its receivers can write to: processes of one user share it as a board.
at::Tensor board(std::int64_t count) {
    static std::mutex mutex;
    static std::map<std::int64_t, at::Tensor> boards;
    const std::lock_guard lock(mutex);
    at::Tensor& numbers = boards[count];
    if (!numbers.defined()) numbers = shared_tensor::empty_in_writable_shared_memory({count}, at::kFloat).zero_();
    return numbers;
}

/// A slow function that can be cancelled.
double slow_sum(shared_tensor::Context& context, const at::Tensor& x, double seconds) {
    context.sleep_for(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
    context.check_cancelled();
    return at::sum(x).item<double>();
}

// An object that stays in the server. Any number of calls can look up numbers at once; a call that adds a word has
// exclusive access.
using example::Vocabulary;
using shared_tensor::Shared;

Shared<Vocabulary> make_vocabulary(std::vector<std::string> words) {
    return shared_tensor::make_shared_object<Vocabulary>(std::move(words));
}

std::vector<int> numbers(const Shared<const Vocabulary>& vocabulary, const std::vector<std::string>& words) {
    std::vector<int> result;
    for (const std::string& word : words)
        result.push_back(vocabulary->number_of(word));
    return result;
}

std::size_t add_word(const Shared<Vocabulary>& vocabulary, const std::string& word) {
    if (vocabulary->number_of(word) < 0) vocabulary->add(word);
    return vocabulary->size();
}

}  // namespace

SHARE(echo, arg("value"), doc("Returns its argument: any JSON value."), idempotent());
SHARE(add, arg("a"), arg("b"), doc("The sum of two numbers."), execution::inline_, idempotent());
SHARE_AS("sleep", sleep_for, arg("seconds"), doc("Waits, can be cancelled, and returns how long it waited."),
         idempotent());
SHARE(fail, arg("message"), doc("Throws std::runtime_error with the message."));
SHARE(scale, arg("x"), arg("factor") = 2.0, doc("x multiplied by factor."), idempotent());
SHARE(board, arg("count"), doc("Zeros that everybody who has them writes to."));
SHARE(slow_sum, arg("x"), arg("seconds") = 1.0, doc("The sum of x, after a while; can be cancelled."), idempotent());
SHARE(ramp, arg("count"), doc("0, 1, 2, ... as float32."), idempotent());
SHARE(scaled_ramp, arg("count"), arg("factor") = 2.0, doc("The ramp multiplied by factor."), idempotent());
SHARE(held_ramp, arg("count"), doc("The ramp, the same tensor every time."), idempotent());
SHARE_AS("vocabulary.make", make_vocabulary, arg("words"), doc("A vocabulary of these words, as an object."));
SHARE_AS("vocabulary.numbers", numbers, arg("vocabulary"), arg("words"), doc("The number of each word, or -1."));
SHARE_AS("vocabulary.add", add_word, arg("vocabulary"), arg("word"), doc("Adds a word; how many there are now."));
