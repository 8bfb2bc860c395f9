// Finds speech in recordings with the Silero voice-activity model in a shared-tensor-server:
//
//     shared-tensor-server --model vad=silero_vad.jit &
//     voice_activity --url http://127.0.0.1:2537 Front_Center.wav Noise.wav
//
// The model keeps state from window to window, so each recording has a session of its own.

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

#include "speech.hpp"
#include "wav.hpp"

namespace {

std::vector<float> speech_probabilities(const shared_tensor::Client& client, Recording recording) {
    pad(recording);
    const shared_tensor::Client session = client.new_session();
    std::vector<float> probabilities;
    for (std::size_t at = 0; at < recording.samples.size(); at += kWindow) {
        const at::Tensor window =
            at::from_blob(&recording.samples[at], {1, kWindow}, at::TensorOptions().dtype(at::kFloat));
        const auto answer = session.call<at::Tensor>("vad.forward", window, kSampleRate);
        probabilities.push_back(*answer.const_data_ptr<float>());
    }
    return probabilities;
}

}  // namespace

int main(int argc, char** argv) {
    std::string url;
    std::vector<std::string> files;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--url" && i + 1 < argc) {
            url = argv[++i];
        } else {
            files.emplace_back(argv[i]);
        }
    }
    if (files.empty()) {
        std::fprintf(stderr, "usage: voice_activity [--url URL] FILE.wav...\n");
        return 2;
    }
    try {
        const shared_tensor::Client client = url.empty() ? shared_tensor::Client() : shared_tensor::Client(url);
        for (const std::string& file : files) {
            report(file, stretches(speech_probabilities(client, resampled(read_wav(file), kSampleRate))));
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "voice_activity: %s\n", error.what());
        return 1;
    }
}
