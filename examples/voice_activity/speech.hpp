#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "wav.hpp"

constexpr int kSampleRate = 16000;    // the sample rate of the model
constexpr std::size_t kWindow = 512;  // samples per window of the model

struct Stretch {
    double start, end;  ///< seconds
};

/// The rule of the model's get_speech_timestamps: speech begins at 0.5 and ends after 100 ms below 0.35; stretches
/// shorter than 250 ms are dropped. Takes one probability per window.
std::vector<Stretch> stretches(const std::vector<float>& probabilities);

/// Appends silence up to a whole window.
void pad(Recording& recording);

/// Prints the stretches.
void report(const std::string& path, const std::vector<Stretch>& found);
