#include "recording.hpp"

#include <shared_tensor/bytes.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "call.hpp"

namespace shared_tensor::test {

namespace {

/// The samples of the chunk "data".
std::vector<std::int16_t> read_samples(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto chunk = bytes.find("data");
    if (!bytes.starts_with("RIFF") || chunk == std::string::npos) throw std::runtime_error(path + " is no recording");
    const std::string_view data = std::string_view(bytes).substr(chunk + 8);
    std::vector<std::int16_t> samples(data.size() / 2);
    std::memcpy(samples.data(), data.data(), samples.size() * 2);
    return samples;
}

}  // namespace

std::vector<float> read_recording(const std::string& path) {
    const auto samples = read_samples(path);
    std::vector<float> result(samples.size() / 3);
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<float>(samples[3 * i] + samples[3 * i + 1] + samples[3 * i + 2]) / (3 * 32768.0F);
    }
    return result;
}

double speech_in(const models::Model& model, const std::vector<float>& samples, std::size_t index,
                 std::string_view session) {
    const auto window = std::span(samples).subspan(index * kWindow, kWindow);
    const codec::Json tensor{
        {"dtype", "float32"}, {"shape", {1, kWindow}}, {"base64", encode_base64(std::as_bytes(window))}};
    const auto result = call(model, "forward", codec::Json::array({{{"$tensor", tensor}}, kSampleRate}), session);
    return result["$tensor"]["data"][0][0].get<double>();
}

std::vector<double> speech_in(const models::Model& model, const std::vector<float>& samples, std::string_view session) {
    std::vector<double> probabilities;
    for (std::size_t i = 0; i < samples.size() / kWindow; ++i)
        probabilities.push_back(speech_in(model, samples, i, session));
    return probabilities;
}

std::vector<std::pair<double, double>> stretches(const std::vector<double>& probabilities) {
    constexpr double kSeconds = static_cast<double>(kWindow) / kSampleRate;
    constexpr double kShort = 0.1;
    std::vector<std::pair<double, double>> found;
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
        if (probabilities[i] <= 0.5) continue;
        const double from = static_cast<double>(i) * kSeconds;
        if (found.empty() || from - found.back().second > kShort) found.emplace_back(from, from);
        found.back().second = from + kSeconds;
    }
    std::erase_if(found, [](const auto& stretch) { return stretch.second - stretch.first < kShort; });
    return found;
}

}  // namespace shared_tensor::test
