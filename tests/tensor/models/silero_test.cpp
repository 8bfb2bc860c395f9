#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "call.hpp"
#include "recording.hpp"
#include "test_paths.hpp"
#include "torch/load_model.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

std::shared_ptr<models::Model> load() {
    at::set_num_threads(1);  // as the daemon does: a team of threads for each caller slows all of them down
    return models::load_model("vad", kSileroModel);
}

std::vector<std::string> method_names(const models::Model& model) {
    std::vector<std::string> names;
    for (const auto& function : model.functions())
        names.emplace_back(function->name());
    return names;
}

}  // namespace

TEST_CASE("every public method of the voice-activity model is a function", "[models]") {
    CHECK(method_names(*load()) == std::vector<std::string>{"vad.forward", "vad.audio_forward", "vad.reset_states"});
}

TEST_CASE("parameters have the names of the model's own schema", "[models]") {
    const auto model = load();
    const auto parameters = function(*model, "forward").parameters();
    REQUIRE(parameters.size() == 3);
    CHECK(parameters[0].name == "x");
    CHECK(parameters[1].name == "sr");
    CHECK(parameters[2].name == "instance");
    CHECK_FALSE(parameters[2].required);
}

TEST_CASE("the voice-activity model finds two stretches of speech in a recording of two words", "[models]") {
    const auto found = stretches(speech_in(*load(), read_recording(kFrontCenterWav), "s"));
    REQUIRE(found.size() == 2);
    CHECK(found[0].second < found[1].first);
}

TEST_CASE("the voice-activity model finds no speech in a recording of noise", "[models]") {
    CHECK(stretches(speech_in(*load(), read_recording(kNoiseWav), "s")).empty());
}

TEST_CASE("two sessions that take turns get the same answers as alone", "[models]") {
    const auto words = read_recording(kFrontCenterWav);
    const auto noise = read_recording(kNoiseWav);
    const auto words_alone = speech_in(*load(), words, "a");
    const auto noise_alone = speech_in(*load(), noise, "b");

    const auto model = load();
    std::vector<double> words_beside, noise_beside;
    for (std::size_t i = 0; i < words_alone.size() || i < noise_alone.size(); ++i) {
        if (i < words_alone.size()) words_beside.push_back(speech_in(*model, words, i, "a"));
        if (i < noise_alone.size()) noise_beside.push_back(speech_in(*model, noise, i, "b"));
    }
    CHECK(words_beside == words_alone);
    CHECK(noise_beside == noise_alone);
}

TEST_CASE("without a session every call starts from the loaded state", "[models]") {
    const auto model = load();
    const auto samples = read_recording(kFrontCenterWav);
    const double first = speech_in(*model, samples, 20, "");
    speech_in(*model, samples, 21, "");
    CHECK(speech_in(*model, samples, 20, "") == first);
    CHECK(speech_in(*model, samples, 20, "new") == first);
}

TEST_CASE("a session's state matters to the model", "[models]") {
    const auto model = load();
    const auto samples = read_recording(kFrontCenterWav);
    for (std::size_t i = 0; i < 20; ++i)
        speech_in(*model, samples, i, "s");
    CHECK(speech_in(*model, samples, 20, "s") != speech_in(*model, samples, 20, ""));
}

TEST_CASE("reset_states of one session leaves the other's state alone", "[models]") {
    const auto model = load();
    const auto samples = read_recording(kFrontCenterWav);
    for (const auto* session : {"a", "b"}) {
        for (std::size_t i = 0; i < 20; ++i)
            speech_in(*model, samples, i, session);
    }
    call(*model, "reset_states", codec::Json::array(), "a");
    const double fresh = speech_in(*model, samples, 20, "");
    CHECK(speech_in(*model, samples, 20, "a") == fresh);
    CHECK(speech_in(*model, samples, 20, "b") != fresh);
}

TEST_CASE("what the model raises arrives with its Python type and its own words", "[models]") {
    const codec::Json tensor{{"dtype", "float32"}, {"data", codec::Json::array({{1, 2, 3}})}};
    const CallFailure failed = failure(*load(), "forward", codec::Json::array({{{"$tensor", tensor}}, kSampleRate}));
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.type == "ValueError");
    CHECK(failed.message == "Input audio chunk is too short");
}

TEST_CASE("a fresh state costs little beside a call", "[models][.benchmark]") {
    const auto model = load();
    const auto samples = read_recording(kFrontCenterWav);
    for (const auto* session : {"", "s"}) {
        for (int i = 0; i < 50; ++i)
            speech_in(*model, samples, 20, session);
        const std::clock_t start = std::clock();  // of the processor: others may use the machine too
        for (int i = 0; i < 1000; ++i)
            speech_in(*model, samples, 20, session);
        const double taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        WARN((*session != 0 ? "in a session: " : "without a session: ") << taken * 1000 << " us a call");
    }
}
