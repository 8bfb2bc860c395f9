#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "wav.hpp"

constexpr int kSampleRate = 16000;    // what the model was trained for
constexpr std::size_t kWindow = 512;  // samples that it looks at

struct Stretch {
    double start, end;  ///< seconds
};

/// The model's own rule (its get_speech_timestamps): speech begins at 0.5 and ends after 100 ms below 0.35; stretches
/// shorter than 250 ms don't count. One probability a window.
std::vector<Stretch> stretches(const std::vector<float>& probabilities);

/// Silence up to a whole window.
void pad(Recording& recording);

/// Prints them.
void report(const std::string& path, const std::vector<Stretch>& found);
