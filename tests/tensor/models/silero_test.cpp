// The voice-activity model: a model as it comes from others.

#include "call.hpp"  // before Catch, whose CHECK libtorch would replace by its own

#include <string>
#include <vector>

#include "test_paths.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;

namespace {

std::shared_ptr<models::Model> load() { return models::load_model("vad", kSileroModel); }

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

TEST_CASE("what the model raises arrives with its Python type and its own words", "[models]") {
    const Json tensor{{"dtype", "float32"}, {"data", Json::array({{1, 2, 3}})}};
    const CallFailure failed = failure(*load(), "forward", Json::array({{{"$tensor", tensor}}, 16000}));
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.type == "ValueError");
    CHECK(failed.message == "Input audio chunk is too short");
}
