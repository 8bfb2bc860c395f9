#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;
using models::State;

namespace {

/// Counts its calls in an attribute, in a list, in a tensor that is replaced and in a buffer that is changed in place;
/// and changes its parameter.
constexpr const char* kCounter = R"(
def step(self) -> List[int]:
    self.count = self.count + 1
    self.seen.append(1)
    self.last = self.last + 1
    self.buffer.add_(1)
    return [self.count, len(self.seen), int(self.last), int(self.buffer)]
def double_weight(self) -> float:
    self.weight.mul_(2)
    return float(self.weight)
)";

models::LoadOptions with(State state) {
    models::LoadOptions options;
    options.state = state;
    return options;
}

Json step(const models::Model& model, std::string_view session) { return call(model, "step", Json::array(), session); }
Json double_weight(const models::Model& model, std::string_view session) {
    return call(model, "double_weight", Json::array(), session);
}

}  // namespace

TEST_CASE("a session keeps all state of its instance and sees nothing of another's", "[models]") {
    const auto model = model_of(kCounter);
    step(*model, "a");
    step(*model, "a");
    CHECK(step(*model, "b") == Json({1, 1, 1, 1}));
    CHECK(step(*model, "a") == Json({3, 3, 3, 3}));
}

TEST_CASE("without a session nothing is kept, buffers changed in place included", "[models]") {
    const auto model = model_of(kCounter);
    step(*model, "");
    CHECK(step(*model, "") == Json({1, 1, 1, 1}));
    CHECK(model->instances() == 0);
}

TEST_CASE("the parameters are shared by all instances", "[models]") {
    const auto model = model_of(kCounter);
    double_weight(*model, "a");
    CHECK(double_weight(*model, "b") == Json(8.0));
}

TEST_CASE("stateful=deep gives each session parameters of its own", "[models]") {
    const auto model = model_of(kCounter, with(State::deep));
    double_weight(*model, "a");
    CHECK(double_weight(*model, "b") == Json(4.0));
}

TEST_CASE("stateful=shared shares tensors until they are replaced", "[models]") {
    const auto model = model_of(kCounter, with(State::shared));
    step(*model, "a");
    CHECK(step(*model, "b") == Json({1, 1, 1, 2}));
}

TEST_CASE("stateful=no runs all calls on one instance, and says that they may run at once", "[models]") {
    const auto model = model_of(kCounter, with(State::none));
    step(*model, "a");
    CHECK(step(*model, "b") == Json({2, 2, 2, 2}));
    CHECK_FALSE(function(*model, "step").options().stateful);
    CHECK(model->instances() == 0);
}

TEST_CASE("a model with state tells the dispatcher so", "[models]") {
    CHECK(function(*model_of(kCounter), "step").options().stateful);
}

TEST_CASE("a closed session's instance is gone", "[models]") {
    const auto model = model_of(kCounter);
    step(*model, "a");
    CHECK(model->instances() == 1);
    model->session_closed("a");
    model->session_closed("never opened");
    CHECK(model->instances() == 0);
    CHECK(step(*model, "a") == Json({1, 1, 1, 1}));
}

TEST_CASE("one session too many is rejected with what to do, known ones go on", "[models]") {
    models::LoadOptions options;
    options.max_instances = 2;
    const auto model = model_of(kCounter, options);
    step(*model, "a");
    step(*model, "b");
    const CallFailure failed = failure(*model, "step", Json::array(), "c");
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.message ==
          "2 sessions hold an instance of this model already: close one that is not used any more "
          "(session.close), or call without a session");
    CHECK(step(*model, "a") == Json({2, 2, 2, 2}));
    CHECK(step(*model, "") == Json({1, 1, 1, 1}));
    model->session_closed("b");
    CHECK(step(*model, "c") == Json({1, 1, 1, 1}));
}

TEST_CASE("calls of one session that come at once still run one after another", "[models]") {
    const auto model = model_of(kCounter);
    constexpr int kCalls = 200;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < kCalls; ++k)
                    try_call(*model, "step", Json::array(), "a");
            });
        }
    }
    const int next = 4 * kCalls + 1;
    CHECK(step(*model, "a") == Json({next, next, next, next}));
}

TEST_CASE("functions outlive their model", "[models]") {
    auto model = model_of(kCounter);
    const auto kept = model->functions().front();
    const std::string name(kept->name());
    model.reset();
    CHECK(kept->name() == name);
    CHECK(written([&](ValueWriter writer) { kept->result_schema(writer); })["type"] == "array");
}
