// The voice-activity model: a model as it comes from others, and recordings.

#include "call.hpp"  // before Catch, whose CHECK libtorch would replace by its own

#include <ATen/Parallel.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <shared_tensor/bytes.hpp>

#include "test_paths.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;

namespace {

constexpr int kSampleRate = 16000;
constexpr std::size_t kWindow = 512;  // samples that the model takes at a time

std::shared_ptr<models::Model> load() {
    at::set_num_threads(1);  // as the daemon does: a team of threads for each caller slows all of them down
    return models::load_model("vad", kSileroModel);
}

/// A recording of 48 kHz, 16 bits, mono, at a third of its rate.
std::vector<float> read_recording(const std::string& path) {
    const std::string bytes = text_of_file(path);
    const auto chunk = bytes.find("data");
    if (!bytes.starts_with("RIFF") || chunk == std::string::npos) throw std::runtime_error(path + " is no recording");
    std::vector<std::int16_t> samples((bytes.size() - chunk - 8) / 2);
    std::memcpy(samples.data(), bytes.data() + chunk + 8, samples.size() * 2);
    std::vector<float> result(samples.size() / 3);
    for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = static_cast<float>(samples[3 * i] + samples[3 * i + 1] + samples[3 * i + 2]) / (3 * 32768.0F);
    return result;
}

/// One call: the probability of speech in window `index`.
double speech_in(const models::Model& model, const std::vector<float>& samples, std::size_t index,
                 std::string_view session) {
    const auto window = std::span(samples).subspan(index * kWindow, kWindow);
    const Json tensor{{"dtype", "float32"}, {"shape", {1, kWindow}}, {"base64", encode_base64(std::as_bytes(window))}};
    const auto result = call(model, "forward", Json::array({{{"$tensor", tensor}}, kSampleRate}), session);
    return result["$tensor"]["data"][0][0].get<double>();
}

/// Of the first `count` windows, one after another.
std::vector<double> speech_in(const models::Model& model, const std::vector<float>& samples, std::string_view session,
                              std::size_t count = SIZE_MAX) {
    std::vector<double> probabilities;
    for (std::size_t i = 0; i < std::min(count, samples.size() / kWindow); ++i)
        probabilities.push_back(speech_in(model, samples, i, session));
    return probabilities;
}

/// How often speech begins: where the probability is above 0.5, pauses and stretches under 0.1 s left out.
std::size_t stretches(const std::vector<double>& probabilities) {
    constexpr std::size_t kShort = kSampleRate / 10 / kWindow;  // in windows
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
        if (probabilities[i] <= 0.5) continue;
        if (found.empty() || i - found.back().second > kShort) found.emplace_back(i, i);
        found.back().second = i + 1;
    }
    std::erase_if(found, [](const auto& stretch) { return stretch.second - stretch.first <= kShort; });
    return found.size();
}

}  // namespace

TEST_CASE("every public method of the voice-activity model is a function, with the names of its own schema",
          "[models]") {
    const auto model = load();
    std::vector<std::string> names;
    for (const auto& one : model->functions())
        names.emplace_back(one->name());
    for (const auto& parameter : function(*model, "forward").parameters())
        names.push_back(parameter.name + (parameter.required ? "" : "?"));
    CHECK(names ==
          std::vector<std::string>{"vad.forward", "vad.audio_forward", "vad.reset_states", "x", "sr", "instance?"});
}

TEST_CASE("the voice-activity model finds two words in a recording and none in noise, though its sessions take turns",
          "[models]") {
    const auto words = read_recording(kFrontCenterWav), noise = read_recording(kNoiseWav);
    const auto words_alone = speech_in(*load(), words, "a"), noise_alone = speech_in(*load(), noise, "b");
    CHECK(stretches(words_alone) == 2);
    CHECK(stretches(noise_alone) == 0);
    const auto model = load();
    std::vector<double> words_beside, noise_beside;
    for (std::size_t i = 0; i < words_alone.size() || i < noise_alone.size(); ++i) {
        if (i < words_alone.size()) words_beside.push_back(speech_in(*model, words, i, "a"));
        if (i < noise_alone.size()) noise_beside.push_back(speech_in(*model, noise, i, "b"));
    }
    CHECK(words_beside == words_alone);
    CHECK(noise_beside == noise_alone);
}

TEST_CASE("a session's state matters to the model, and is reset without another's", "[models]") {
    const auto model = load();
    const auto samples = read_recording(kFrontCenterWav);
    const double fresh = speech_in(*model, samples, 20, "");
    for (const auto* session : {"a", "b"})
        speech_in(*model, samples, session, 20);
    call(*model, "reset_states", Json::array(), "a");
    CHECK(speech_in(*model, samples, 20, "") == fresh);
    CHECK(speech_in(*model, samples, 20, "a") == fresh);
    CHECK(speech_in(*model, samples, 20, "b") != fresh);
}

TEST_CASE("what the model raises arrives with its Python type and its own words", "[models]") {
    const Json tensor{{"dtype", "float32"}, {"data", Json::array({{1, 2, 3}})}};
    const CallFailure failed = failure(*load(), "forward", Json::array({{{"$tensor", tensor}}, kSampleRate}));
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.type == "ValueError");
    CHECK(failed.message == "Input audio chunk is too short");
}
