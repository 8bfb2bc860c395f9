#include "wav.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numbers>
#include <stdexcept>

namespace {

template <class T>
T field(const std::string& bytes, std::size_t at) {
    T value{};
    if (at + sizeof value > bytes.size()) throw std::runtime_error("the file ends in the middle of a header");
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

struct Format {
    std::uint16_t coding = 0, channels = 0, bits = 0;
    std::uint32_t rate = 0;
};

std::vector<float> read_samples(const std::string& bytes, std::size_t at, std::size_t size, const Format& format) {
    if (format.coding != 1 || format.bits != 16 || format.channels == 0)
        throw std::runtime_error("only 16-bit PCM is read");
    const std::size_t frame_bytes = 2 * std::size_t{format.channels};
    std::vector<float> samples(std::min(size, bytes.size() - at) / frame_bytes);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        for (std::size_t channel = 0; channel < format.channels; ++channel) {
            samples[i] += static_cast<float>(field<std::int16_t>(bytes, at + i * frame_bytes + 2 * channel)) / 32768.0F;
        }
        samples[i] /= static_cast<float>(format.channels);
    }
    return samples;
}

Recording parse_wav(const std::string& bytes) {
    if (bytes.size() < 12 || bytes.compare(0, 4, "RIFF") != 0 || bytes.compare(8, 4, "WAVE") != 0) {
        throw std::runtime_error("not a RIFF/WAVE file");
    }
    Format format;
    for (std::size_t at = 12; at + 8 <= bytes.size();) {
        const std::string id = bytes.substr(at, 4);
        const std::size_t size = field<std::uint32_t>(bytes, at + 4);
        if (id == "fmt ") {
            format = {field<std::uint16_t>(bytes, at + 8), field<std::uint16_t>(bytes, at + 10),
                      field<std::uint16_t>(bytes, at + 22), field<std::uint32_t>(bytes, at + 12)};
        } else if (id == "data") {
            return {static_cast<int>(format.rate), read_samples(bytes, at + 8, size, format)};
        }
        at += 8 + size + size % 2;  // chunks are padded to even sizes
    }
    throw std::runtime_error("no data chunk");
}

std::vector<float> low_pass(int factor) {
    const int half = 16 * factor;
    std::vector<float> taps(static_cast<std::size_t>(2 * half + 1));
    double sum = 0;
    for (int i = -half; i <= half; ++i) {
        const double x = std::numbers::pi * i / factor;
        const double window = 0.5 + 0.5 * std::cos(std::numbers::pi * i / half);
        const double tap = (i == 0 ? 1.0 : std::sin(x) / x) * window;
        taps[static_cast<std::size_t>(i + half)] = static_cast<float>(tap);
        sum += tap;
    }
    for (float& tap : taps)
        tap /= static_cast<float>(sum);
    return taps;
}

}  // namespace

Recording read_wav(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    try {
        return parse_wav(bytes);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(path + ": " + error.what());
    }
}

Recording resampled(const Recording& recording, int rate) {
    if (recording.sample_rate == rate) return recording;
    if (rate <= 0 || recording.sample_rate % rate != 0) {
        throw std::invalid_argument("cannot resample from " + std::to_string(recording.sample_rate) + " Hz to " +
                                    std::to_string(rate) + " Hz: a multiple is needed");
    }
    const int factor = recording.sample_rate / rate;
    const std::vector<float> taps = low_pass(factor);
    const auto half = static_cast<std::ptrdiff_t>(taps.size() / 2);
    const auto size = static_cast<std::ptrdiff_t>(recording.samples.size());
    Recording result{rate, std::vector<float>(recording.samples.size() / static_cast<std::size_t>(factor))};
    for (std::size_t i = 0; i < result.samples.size(); ++i) {
        const auto center = static_cast<std::ptrdiff_t>(i) * factor;
        for (std::ptrdiff_t k = -half; k <= half; ++k) {
            const std::ptrdiff_t at = center + k;
            if (at < 0 || at >= size) continue;
            result.samples[i] +=
                taps[static_cast<std::size_t>(k + half)] * recording.samples[static_cast<std::size_t>(at)];
        }
    }
    return result;
}
