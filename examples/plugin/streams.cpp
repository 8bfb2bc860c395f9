// Functions that stream: they read and write values while they run.
//
//     StreamCall<double> call = client.stream<double>("running_sum");
//     curl -N -H 'Accept: text/event-stream' ... '{"jsonrpc":"2.0","id":1,"method":"count","params":[5]}'

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using shared_tensor::Context;
using shared_tensor::Reader;
using shared_tensor::Writer;

/// Sends 1, 2, 3, ... to the caller, until `up_to` or until the caller ends the stream.
std::int64_t count(Context& context, Writer<std::int64_t> numbers, std::int64_t up_to, double seconds_between) {
    const auto pause =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds_between));
    std::int64_t sent = 0;
    while (sent < up_to && numbers.write(sent + 1)) {
        ++sent;
        if (pause.count() > 0) context.sleep_for(pause);
    }
    return sent;
}

/// Reads numbers from the caller.
double sum_of(Reader<double> numbers) {
    double sum = 0;
    for (const double number : numbers)
        sum += number;
    return sum;
}

/// Reads and writes at once: sends the sum so far for each number.
double running_sum(Reader<double> numbers, Writer<double> sums) {
    double sum = 0;
    for (const double number : numbers)
        sums.write(sum += number);
    return sum;
}

/// Tensors in both directions. Returns how many there were.
std::int64_t scale_each(Reader<at::Tensor> tensors, Writer<at::Tensor> scaled, double factor) {
    std::int64_t count = 0;
    for (const at::Tensor& tensor : tensors) {
        scaled.write(at::mul(tensor, factor));
        ++count;
    }
    return count;
}

/// Sends small float32 tensors one after another, like the tokens of a model. Fails after `fail_after` tensors, unless
/// that is negative.
void tokens(Writer<at::Tensor> out, std::int64_t count, std::int64_t width, std::int64_t fail_after) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (i == fail_after) throw std::runtime_error("there is no token " + std::to_string(i));
        if (!out.write(at::full({width}, static_cast<double>(i), at::kFloat))) return;
    }
}

/// Reads the tensors and keeps none.
double drain(Reader<at::Tensor> tensors) {
    double sum = 0;
    for (const at::Tensor& tensor : tensors)
        sum += tensor.numel() > 0 ? tensor.reshape({-1})[0].item<double>() : 0;
    return sum;
}

}  // namespace

SHARE(count, arg("numbers"), arg("up_to"), arg("seconds_between") = 0.0, doc("Streams 1, 2, 3, ... to its caller."));
SHARE(sum_of, arg("numbers"), doc("The sum of the numbers that its caller streams."));
SHARE(running_sum, arg("numbers"), arg("sums"), doc("The sum so far for each number that its caller streams."));
SHARE(scale_each, arg("tensors"), arg("scaled"), arg("factor") = 2.0, doc("Each tensor, multiplied by factor."));
SHARE(tokens, arg("tokens"), arg("count"), arg("width") = 16, arg("fail_after") = -1,
      doc("Streams small tensors to its caller."));
SHARE(drain, arg("tensors"), doc("Reads a stream of tensors; the sum of their first elements."));
