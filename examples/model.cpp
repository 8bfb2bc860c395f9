// A stateful TorchScript model, called directly. Shows why sessions exist.
//
//     shared-tensor-server --model vad=silero_vad.jit &
//     model
//
// The Silero voice-activity model takes 512 samples at 16 kHz per call, returns the probability of speech, and keeps
// state between calls. voice_activity/ does this with real recordings.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using shared_tensor::Client;

constexpr int kSampleRate = 16000;

/// A buzz of 150 Hz with overtones, a little like a voice.
at::Tensor buzz(std::int64_t first_sample) {
    const at::Tensor time = at::arange(first_sample, first_sample + 512, at::TensorOptions().dtype(at::kFloat));
    at::Tensor sound = time.sin() * 0;
    for (int overtone = 1; overtone <= 12; ++overtone)
        sound += (time * (6.2831853F * 150.0F * static_cast<float>(overtone) / kSampleRate)).sin() / overtone;
    return (sound * 0.3).unsqueeze(0);
}

std::vector<float> probabilities(const Client& client) {
    std::vector<float> answers;
    for (std::int64_t window = 0; window < 4; ++window)
        answers.push_back(client.call<at::Tensor>("vad.forward", buzz(window * 512), kSampleRate).item<float>());
    return answers;
}

void show(const char* who, const std::vector<float>& answers) {
    std::printf("%-18s", who);
    for (const float answer : answers)
        std::printf(" %.4f", static_cast<double>(answer));
    std::printf("\n");
}

}  // namespace

int main() {
    try {
        const Client client;
        // Without a session, each call starts from the state that was loaded.
        const auto without = probabilities(client);
        show("without a session", without);

        // In a session, each call starts from the state of the previous one. Sessions do not affect each other.
        const Client anna = client.new_session(), ben = client.new_session();
        const auto first = probabilities(anna);
        show("Anna's session", first);
        const auto second = probabilities(ben);
        show("Ben's session", second);

        if (first != second) throw std::runtime_error("two sessions with the same input differ");
        if (first == without) throw std::runtime_error("the session kept no state");

        // Other methods of the model are shared as well.
        anna.call("vad.reset_states");
        const auto again = probabilities(anna);
        show("Anna, after reset", again);
        if (again != first) throw std::runtime_error("reset_states did not bring the first state back");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "model: %s\n", error.what());
        return 1;
    }
}
