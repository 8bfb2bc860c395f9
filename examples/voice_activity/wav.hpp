#pragma once

#include <string>
#include <vector>

/// Mono samples from -1 to 1.
struct Recording {
    int sample_rate = 0;
    std::vector<float> samples;
};

/// Reads a RIFF/WAVE file of 16-bit PCM; several channels are averaged. Throws std::runtime_error that names the file.
Recording read_wav(const std::string& path);

/// Lowers the rate by a whole factor: a windowed-sinc low-pass (Hann, 16 zero crossings), then every factor-th sample.
/// Throws std::invalid_argument when `rate` does not divide the recording's.
Recording resampled(const Recording& recording, int rate);
