#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <shared_tensor/json.hpp>
#include <string>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace json_types_test {

struct Person {
    std::string name;
    int age = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Person, name, age)

struct Secretive {
    int value() const { return value_; }
    NLOHMANN_DEFINE_TYPE_INTRUSIVE(Secretive, value_)
private:
    int value_ = 0;
};

enum class Level { low, high };
NLOHMANN_JSON_SERIALIZE_ENUM(Level, {{Level::low, "low"}, {Level::high, "high"}})

static_assert(Shareable<Person> && Shareable<Secretive> && Shareable<Level> && Shareable<nlohmann::json>);
static_assert(Shareable<std::vector<Person>> && Shareable<std::map<std::string, Level>>);
struct Nothing {};
static_assert(!Shareable<Nothing> && !Shareable<std::vector<Nothing>> && !Shareable<int*> && !Shareable<void>);

}  // namespace json_types_test
using namespace json_types_test;

TEST_CASE("any JSON value comes back as it was", "[share][json]") {
    for (const char* text : {"null", "true", "-5", "18446744073709551615", "2.5", "\"x\"", "[]", "{}",
                             "[1, [2, {\"a\": null}]]", R"({"a": {"b": [1, 2.5, "c", false, null]}})"}) {
        INFO(text);
        const Json json = Json::parse(text);
        CHECK(write<Json>(json) == json);
        CHECK(read<Json>(json) == json);
        CHECK(write<Json>(json).dump() == json.dump());
    }
}

TEST_CASE("a JSON value without a number for it, from a program, has the protocol's name", "[share][json]") {
    CHECK(write<Json>(std::numeric_limits<double>::infinity()) == "Infinity");
}

TEST_CASE("a tensor is no JSON value", "[share][json]") {
    CHECK(rejection<Json>(Json::parse(R"({"a": [{"$tensor": {"name": "x"}}]})")) ==
          "a[0]: expected JSON value without tensors, got tensor");
}

TEST_CASE("types with nlohmann's macros travel", "[share][json]") {
    const auto person = read<Person>(Json{{"name", "Ada"}, {"age", 36}});
    CHECK(person.name == "Ada");
    CHECK(write(person) == Json{{"name", "Ada"}, {"age", 36}});
    CHECK(read<Secretive>(Json{{"value_", 7}}).value() == 7);
    CHECK(write(std::vector<Person>{person})[0]["age"] == 36);
}

TEST_CASE("what nlohmann's conversion rejects is an invalid value with its words", "[share][json]") {
    CHECK(rejection<Person>(Json{{"name", "Ada"}}).find("'age' not found") != std::string::npos);
    CHECK(rejection<Person>(Json{{"name", 1}, {"age", 1}}).find("type must be string") != std::string::npos);
    CHECK(rejection<std::vector<Person>>(Json::parse("[{}]")).starts_with("[0]: expected value that nlohmann's"));
}

TEST_CASE("an enum with nlohmann's macro is one of its names; an unknown one is not taken for the first",
          "[share][json]") {
    CHECK(read<Level>("high") == Level::high);
    CHECK(write(Level::low) == "low");
    CHECK(rejection<Level>("medium") == "value: expected one of the enumerators' names, got string \"medium\"");
    CHECK(rejection<Level>(5) != "taken");
}
