#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

constexpr std::size_t kChunk = 512;
constexpr int kChunks = 30;

/// Calls of one daemon with a stateful model.
struct Silero : Calls {
    Silero() : Calls(port_of_daemon()) {}

    static int port_of_daemon() {
        static SharedDaemon daemon(with_plugins({"--model", std::string("vad=") + kSileroModel}));
        return daemon.port();
    }
    HeaderList open_session() const {
        return {{"Shared-Tensor-Session", call("session.open")["session"].get<std::string>()}};
    }
    /// The model's answer to the chunk, in the shortest form that reads back the same: equal text, equal bits.
    std::string probability(const std::vector<float>& samples, int chunk, const HeaderList& headers) const {
        const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk);
        const Json values = std::vector<float>(begin, begin + kChunk);
        const Json x{{"$tensor", {{"dtype", "float32"}, {"shape", {1, kChunk}}, {"data", Json::array({values})}}}};
        return call("vad.forward", {{"x", x}, {"sr", 16000}}, headers)["$tensor"]["data"].dump();
    }
    std::vector<std::string> alone(const std::vector<float>& samples) const {
        const HeaderList session = open_session();
        std::vector<std::string> answers;
        for (int chunk = 0; chunk < kChunks; ++chunk)
            answers.push_back(probability(samples, chunk, session));
        return answers;
    }
};

/// Every third sample of a recording of 48 kHz, as the model takes it.
std::vector<float> recording(const char* path) {
    const std::string bytes = text_of_file(path);
    std::vector<float> samples;
    for (std::size_t at = 44; at + 1 < bytes.size(); at += 6) {
        std::int16_t sample = 0;
        std::memcpy(&sample, bytes.data() + at, 2);
        samples.push_back(static_cast<float>(sample) / 32768.0F);
    }
    REQUIRE(samples.size() >= kChunk * kChunks);
    return samples;
}

}  // namespace

TEST_CASE_METHOD(Silero, "two interleaved clients of a stateful model get the answers that each gets alone",
                 "[server][silero]") {
    const std::vector<float> speech = recording(kFrontCenterWav), noise = recording(kNoiseWav);
    const auto speech_alone = alone(speech), noise_alone = alone(noise);
    const HeaderList one = open_session(), two = open_session();
    std::vector<std::string> speech_beside, noise_beside;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
        speech_beside.push_back(probability(speech, chunk, one));
        noise_beside.push_back(probability(noise, chunk, two));
    }
    CHECK(speech_beside == speech_alone);
    CHECK(noise_beside == noise_alone);
    CHECK(speech_alone != noise_alone);
    // Without a session every call starts afresh.
    CHECK(probability(speech, 0, {}) == speech_alone[0]);
    CHECK(probability(speech, 5, {}) == probability(speech, 5, {}));
    CHECK(probability(speech, 5, {}) != speech_alone[5]);
}

TEST_CASE_METHOD(Calls, "a session that was closed, or never opened, is -32005; calls that run are not disturbed",
                 "[server]") {
    const Json id = call("session.open")["session"];
    const HeaderList session{{"Shared-Tensor-Session", id}};
    PendingCall pending = hold("hold", session);
    REQUIRE(until("started"));
    CHECK(call("session.close", {id})["closed"] == true);
    CHECK(code("add", {1, 2}, session) == -32005);
    CHECK(code("add", {1, 2}, {{"Shared-Tensor-Session", "s-1"}}) == -32005);
    release();
    CHECK(pending.response()["result"] == 0);
    const HeaderList own{{"Shared-Tensor-Session", call("session.open")["session"]}};
    CHECK(call("session.close", nullptr, own)["closed"] == true);
}
