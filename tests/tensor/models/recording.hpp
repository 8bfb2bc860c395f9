#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/models/model.hpp"

namespace shared_tensor::test {

inline constexpr int kSampleRate = 16000;
inline constexpr std::size_t kWindow = 512;  ///< samples that the voice-activity model takes at a time

/// A recording of 48 kHz, 16 bits, mono, at a third of its rate.
std::vector<float> read_recording(const std::string& path);

/// One call of the voice-activity model: the probability of speech in window `index`.
double speech_in(const models::Model& model, const std::vector<float>& samples, std::size_t index,
                 std::string_view session);
/// All windows, one after another.
std::vector<double> speech_in(const models::Model& model, const std::vector<float>& samples, std::string_view session);

/// From second, to second: where the probability is above 0.5, pauses under 0.1 s and stretches under 0.1 s left out.
std::vector<std::pair<double, double>> stretches(const std::vector<double>& probabilities);

}  // namespace shared_tensor::test
