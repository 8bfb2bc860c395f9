#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <fstream>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

constexpr std::size_t kChunk = 512;
constexpr int kChunks = 30;

int silero_daemon() {
    static Daemon daemon(with_plugins({"--model", std::string("vad=") + kSileroModel}));
    return daemon.port();
}

/// Every third sample of a recording of 48 kHz, as the model takes it.
std::vector<float> recording(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<float> samples;
    for (std::size_t at = 44; at + 1 < bytes.size(); at += 6) {
        std::int16_t sample = 0;
        std::memcpy(&sample, bytes.data() + at, 2);
        samples.push_back(static_cast<float>(sample) / 32768.0F);
    }
    return samples;
}

/// The model's answer to the chunk, in the shortest form that reads back the same: equal text, equal bits.
std::string probability(const std::vector<float>& samples, int chunk, const HeaderList& headers) {
    Json values = Json::array();
    for (std::size_t i = 0; i < kChunk; ++i)
        values.push_back(samples.at(static_cast<std::size_t>(chunk) * kChunk + i));
    const Json x{{"$tensor",
                  {{"dtype", "float32"}, {"shape", {1, kChunk}}, {"device", "cpu"}, {"data", Json::array({values})}}}};
    return call(silero_daemon(), "vad.forward", {{"x", x}, {"sr", 16000}}, headers)["$tensor"]["data"].dump();
}

HeaderList open_session() {
    return {{"Shared-Tensor-Session", call(silero_daemon(), "session.open")["session"].get<std::string>()}};
}

std::vector<std::string> alone(const std::vector<float>& samples) {
    const HeaderList session = open_session();
    std::vector<std::string> answers;
    for (int chunk = 0; chunk < kChunks; ++chunk)
        answers.push_back(probability(samples, chunk, session));
    return answers;
}

}  // namespace

TEST_CASE("two interleaved clients of a stateful model get the answers that each gets alone", "[server][silero]") {
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

    SECTION("and without a session every call starts afresh") {
        CHECK(probability(speech, 0, {}) == speech_alone[0]);
        CHECK(probability(speech, 5, {}) == probability(speech, 5, {}));
        CHECK(probability(speech, 5, {}) != speech_alone[5]);
    }
}

TEST_CASE("a session that was closed, or never opened, is -32005", "[server][silero]") {
    const HeaderList session = open_session();
    CHECK(call(silero_daemon(), "session.close", nullptr, session)["closed"] == true);
    CHECK(call_code(silero_daemon(), "add", {1, 2}, session) == -32005);
    CHECK(call_code(silero_daemon(), "add", {1, 2}, {{"Shared-Tensor-Session", "s-1"}}) == -32005);
}

TEST_CASE("a session that is closed during its call does not disturb the call", "[server][silero]") {
    const HeaderList session = open_session();
    const std::string name = fresh_name();
    PendingCall pending(silero_daemon(), "hold", {name}, session);
    REQUIRE(until(silero_daemon(), name, "started", 1));
    call(silero_daemon(), "session.close", {session[0].second});
    call(silero_daemon(), "release", {name});
    CHECK(pending.response()["result"] == 0);
}

TEST_CASE("sessions are bounded in number and end when idle", "[server]") {
    SECTION("too many") {
        Daemon daemon({"--max-sessions", "2"});
        call(daemon.port(), "session.open");
        const Json second = call(daemon.port(), "session.open");
        const HttpReply rejected = post(daemon.port(), call_object("session.open", nullptr).dump());
        CHECK(rejected.status == 503);
        CHECK(code_of(Json::parse(rejected.body)) == -32001);
        call(daemon.port(), "session.close", {second["session"]});
        CHECK(call(daemon.port(), "session.open").contains("session"));
    }
    SECTION("idle") {
        Daemon daemon({"--session-idle", "100ms"});
        const HeaderList session{{"Shared-Tensor-Session", call(daemon.port(), "session.open")["session"]}};
        CHECK(eventually([&] { return call(daemon.port(), "server.info")["totals"]["sessions"] == 0; }));
        CHECK(call_code(daemon.port(), "server.ping", nullptr, session) == -32005);
    }
}
