// Finds the stretches of speech in recordings with the Silero voice-activity model that a shared-tensor-server holds:
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
#include <shared_tensor/tensor.hpp>

#include "wav.hpp"

namespace {

constexpr int kSampleRate = 16000;    // what the model was trained for
constexpr std::size_t kWindow = 512;  // samples a call

struct Stretch {
    double start, end;  ///< seconds
};

/// The model's own rule (its get_speech_timestamps): speech begins at 0.5 and ends after 100 ms below 0.35; stretches
/// shorter than 250 ms don't count.
std::vector<Stretch> stretches(const std::vector<float>& probabilities) {
    constexpr float kBegin = 0.5F, kEnd = 0.35F;
    constexpr double kSilence = 0.1, kShortest = 0.25;
    std::vector<Stretch> found;
    double start = -1, silent_since = -1;
    const double step = double{kWindow} / kSampleRate;
    const auto close = [&](double end) {
        if (end - start >= kShortest) found.push_back({start, end});
        start = silent_since = -1;
    };
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
        const double now = static_cast<double>(i) * step;
        if (probabilities[i] >= kBegin) {
            if (start < 0) start = now;
            silent_since = -1;
        } else if (start >= 0 && probabilities[i] < kEnd) {
            if (silent_since < 0) silent_since = now;
            if (now - silent_since >= kSilence) close(silent_since);
        }
    }
    if (start >= 0) close(static_cast<double>(probabilities.size()) * step);
    return found;
}

std::vector<float> speech_probabilities(const shared_tensor::Client& client, Recording recording) {
    recording.samples.resize((recording.samples.size() + kWindow - 1) / kWindow * kWindow);
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

void report(const std::string& path, const std::vector<Stretch>& found) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    std::printf("%s: %zu stretch%s of speech\n", name.c_str(), found.size(), found.size() == 1 ? "" : "es");
    for (const Stretch& stretch : found)
        std::printf("  %6.2f s to %6.2f s\n", stretch.start, stretch.end);
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
