// Streams a recording, window by window, to the voice-activity model, and receives the probabilities while the
// recording goes on. Needs a daemon with the plugin of voice_stream_plugin.cpp, and with the model as "vad" to compare
// with.
//
//     voice_activity_stream Front_Center.wav

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

using shared_tensor::Client;

at::Tensor window_of(Recording& recording, std::size_t at) {
    return at::from_blob(&recording.samples[at], {1, kWindow}, at::TensorOptions().dtype(at::kFloat));
}

/// Like a microphone: sends each window as soon as it is complete, and gets its probability before the next window.
std::vector<float> streamed(const Client& client, Recording& recording) {
    auto call = client.stream("voice_activity", kSampleRate);
    auto windows = call.writer<at::Tensor>();
    auto heard = call.reader<float>();
    std::vector<float> probabilities;
    bool speaking = false;
    for (std::size_t at = 0; at < recording.samples.size(); at += kWindow) {
        windows.write(window_of(recording, at));
        probabilities.push_back(heard.next().value());
        if (!speaking && probabilities.back() >= 0.5F)
            std::printf("speech is heard %.2f s after the start\n", static_cast<double>(at + kWindow) / kSampleRate);
        speaking = speaking || probabilities.back() >= 0.5F;
    }
    windows.end();
    call.result();
    return probabilities;
}

/// The same with one call per window, in a session of their own.
std::vector<float> called(const Client& client, Recording& recording) {
    const Client session = client.new_session();
    std::vector<float> probabilities;
    for (std::size_t at = 0; at < recording.samples.size(); at += kWindow)
        probabilities.push_back(
            *session.call<at::Tensor>("vad.forward", window_of(recording, at), kSampleRate).const_data_ptr<float>());
    return probabilities;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: voice_activity_stream FILE.wav...\n");
        return 2;
    }
    try {
        const Client client;
        for (int i = 1; i < argc; ++i) {
            Recording recording = resampled(read_wav(argv[i]), kSampleRate);
            pad(recording);
            const std::vector<float> probabilities = streamed(client, recording);
            report(argv[i], stretches(probabilities));
            std::printf("the same as call by call: %s\n", probabilities == called(client, recording) ? "yes" : "no");
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "voice_activity_stream: %s\n", error.what());
        return 1;
    }
}
