#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <shared_tensor/torch.hpp>
#include <vector>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// What the voice-activity model says of four frames of one constant loudness.
std::vector<double> speech(const Client& client, double loudness, std::vector<double> before = {}) {
    const at::Tensor frame = at::full({1, 512}, loudness);
    before.push_back(client.call<at::Tensor>("vad.forward", frame, 16000).item<double>());
    return before;
}

}  // namespace

TEST_CASE("A session has a token, which its calls carry", "[client]") {
    const ExampleDaemon server;
    const Client session = server.client().new_session();
    CHECK(session.session().starts_with("s-"));
    CHECK(session.call<double>("add", 1, 2) == 3);
    CHECK(session.with({}).session() == session.session());
}

TEST_CASE("A session ends with the last client that has it", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::optional<Client> session = client.new_session();
    std::optional<Client> copy = session;
    CallOptions stolen;
    stolen.session = session->session();
    session.reset();
    CHECK(client.with(stolen).call<double>("add", 1, 2) == 3);
    copy.reset();
    CHECK_THROWS_AS(client.with(stolen).call<double>("add", 1, 2), UnknownOrExpired);
}

TEST_CASE("Two sessions of a model with state do not disturb each other", "[client]") {
    const ExampleDaemon server({"--model", std::string("vad=") + kSileroModel});
    const Client client = server.client();
    const Client alone = client.new_session();
    const Client quiet = client.new_session();
    const Client loud = client.new_session();
    std::vector<double> expected, seen;
    for (int i = 0; i < 4; ++i)
        expected = speech(alone, 0.1, expected);
    for (int i = 0; i < 4; ++i) {
        seen = speech(quiet, 0.1, seen);
        speech(loud, 0.9);
    }
    CHECK(seen == expected);
}
