#include "speech.hpp"

#include <cstdio>

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

void pad(Recording& recording) {
    recording.samples.resize((recording.samples.size() + kWindow - 1) / kWindow * kWindow);
}

void report(const std::string& path, const std::vector<Stretch>& found) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    std::printf("%s: %zu stretch%s of speech\n", name.c_str(), found.size(), found.size() == 1 ? "" : "es");
    for (const Stretch& stretch : found)
        std::printf("  %6.2f s to %6.2f s\n", stretch.start, stretch.end);
}
