// Structs and enums of users, by the macros of this library and by nlohmann's.

#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/json.hpp>
#include <stdexcept>
#include <string>

#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace user_types_test {

struct Point {
    float x = 0, y = 0;
    bool operator==(const Point&) const = default;
};
SHARED_TENSOR_FIELDS(Point, x, y);

enum class Colour { red, green };
SHARED_TENSOR_ENUM(Colour, red, green);
enum Plain : unsigned char { kOne = 1, kTwo = 2 };
SHARED_TENSOR_ENUM(Plain, kOne, kTwo);

struct Shape {
    std::vector<Point> corners;
    std::optional<Colour> colour;
    std::map<std::string, Point> marks;
    bool operator==(const Shape&) const = default;
};
SHARED_TENSOR_FIELDS(Shape, corners, colour, marks);

struct Scene {
    std::string name;
    TensorRef image;
    std::map<std::string, TensorRef> layers;
    std::optional<TensorRef> mask;
};
SHARED_TENSOR_FIELDS(Scene, name, image, layers, mask);

struct One {
    int only = 0;
};
SHARED_TENSOR_FIELDS(One, only);

struct Two : One {
    int other = 0;
};
SHARED_TENSOR_FIELDS(Two, only, other);

struct None {};
SHARED_TENSOR_FIELDS(None);

#define EIGHT(X) int X##0 = 0, X##1 = 1, X##2 = 2, X##3 = 3, X##4 = 4, X##5 = 5, X##6 = 6, X##7 = 7;
struct Wide {
    EIGHT(a) EIGHT(b) EIGHT(c) EIGHT(d) EIGHT(e) EIGHT(f) EIGHT(g) EIGHT(h)
};
#undef EIGHT
#define EIGHT(X) X##0, X##1, X##2, X##3, X##4, X##5, X##6, X##7
SHARED_TENSOR_FIELDS(Wide, EIGHT(a), EIGHT(b), EIGHT(c), EIGHT(d), EIGHT(e), EIGHT(f), EIGHT(g), EIGHT(h));
#undef EIGHT

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

}  // namespace user_types_test
using namespace user_types_test;

TEST_CASE("a struct is an object of its members, with a schema; one, sixty-four, nested", "[share][struct]") {
    CHECK(write(Point{1, 2.5}) == Json::parse(R"({"x": 1.0, "y": 2.5})"));
    CHECK(read<Point>(Json::parse(R"({"y": 2.5, "x": 1})")) == Point{1, 2.5});
    CHECK(read<One>(Json{{"only", 3}}).only == 3);
    CHECK(write(read<Two>(Json{{"only", 3}, {"other", 4}})) == Json{{"only", 3}, {"other", 4}});  // inherited
    CHECK(schema<Two>()["required"] == Json{"only", "other"});
    CHECK(write(None()) == Json::object());
    const Json wide = write(Wide());
    CHECK(wide.size() == 64);
    CHECK(wide["h7"] == 7);
    CHECK(write(read<Wide>(wide)) == wide);
    const Shape shape{{{1, 2}, {3, 4}}, Colour::red, {{"top", {5, 6}}}};
    CHECK(read<Shape>(write(shape)) == shape);
    const Json colour = schema<Shape>()["properties"]["colour"];
    CHECK(colour == Json::parse(R"({"anyOf": [{"enum": ["red", "green"]}, {"type": "null"}]})"));
    CHECK(schema<Shape>()["required"] == Json{"corners", "marks"});
    CHECK(schema<One>() == Json::parse(R"({
        "type": "object",
        "properties": {"only": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647}},
        "required": ["only"],
        "additionalProperties": false})"));
}

TEST_CASE("a missing member, an unknown one and a wrong one are rejected by name, with the whole path",
          "[share][struct]") {
    const auto rejects = [](const char* text) { return rejection<Point>(Json::parse(text)); };
    CHECK(rejects(R"({"x": 1})") == "value: expected member \"y\", got no such member");
    CHECK(rejects(R"({"x": 1, "y": 2, "z": 3})") == "z: expected no such member, got number 3");
    CHECK(rejects(R"({"x": 1, "y": null})") == "y: expected number, got null");
    CHECK(rejects("[1, 2]") == "value: expected object, got array of 2");
    CHECK(rejection<Shape>(Json::parse(R"({"corners": [{"x": 1, "y": "up"}], "marks": {}})")) ==
          "corners[0].y: expected number, got string \"up\"");
    CHECK(rejection<Shape>(Json::parse(R"({"corners": [], "marks": {"top": {"y": 1}}})")) ==
          "marks.top: expected member \"x\", got no such member");
    CHECK(rejection<Scene>(Json::parse(R"({"name": "s", "image": [[1, 2]], "layers": {}})")) ==
          "image: expected tensor, got array of 1");
    CHECK(rejection<Scene>(Json::parse(R"({"name": "s", "image": {"$tensor": {"name": 5}}, "layers": {}})")) ==
          "image.name: expected string, got nothing");
}

TEST_CASE("an optional member may be left out or null", "[share][struct]") {
    Json json = Json::parse(R"({"corners": [], "marks": {}})");
    CHECK(read<Shape>(json).colour == std::nullopt);
    json["colour"] = nullptr;
    CHECK(read<Shape>(json).colour == std::nullopt);
    json["colour"] = "green";
    CHECK(read<Shape>(json).colour == Colour::green);
}

TEST_CASE("an enum is the name of its enumerator, and what was not listed cannot be written", "[share][struct]") {
    CHECK(write(Colour::green) == "green");
    CHECK(read<Colour>("red") == Colour::red);
    CHECK(rejection<Colour>("blue") == "value: expected one of \"red\" \"green\", got string \"blue\"");
    CHECK(rejection<Colour>(0) == "value: expected one of \"red\" \"green\", got number 0");
    CHECK(read<Plain>("kTwo") == kTwo);
    CHECK(write(kOne) == "kOne");
    CHECK_THROWS_AS(write(static_cast<Colour>(9)), std::invalid_argument);
}

TEST_CASE("tensors travel anywhere inside a struct", "[share][struct]") {
    const Json json = Json::parse(R"({"name": "s", "image": {"$tensor": {"name": "i"}},
                                      "layers": {"a": {"$tensor": {"name": "l"}}}, "mask": {"$tensor": {"name": "m"}}})");
    const auto scene = read<Scene>(json);
    CHECK(name_in(scene.image) == "i");
    CHECK(name_in(scene.layers.at("a")) == "l");
    CHECK(name_in(*scene.mask) == "m");
    CHECK(write(scene) == json);
}

TEST_CASE("types with nlohmann's macros travel, and what its conversion rejects is told in its words",
          "[share][json]") {
    const Json ada{{"name", "Ada"}, {"age", 36}};
    CHECK(write(read<Person>(ada)) == ada);
    CHECK(write(std::vector<Person>{{"Ada", 36}}) == Json::array({ada}));
    CHECK(read<Secretive>(Json{{"value_", 7}}).value() == 7);
    CHECK(rejection<Person>(Json{{"name", "Ada"}}).find("'age' not found") != std::string::npos);
    CHECK(rejection<Person>(Json{{"name", 1}, {"age", 1}}).find("type must be string") != std::string::npos);
    CHECK(rejection<std::vector<Person>>(Json::parse("[{}]")).starts_with("[0]: expected value that nlohmann's"));
    CHECK(read<Level>("high") == Level::high);
    CHECK(write(Level::low) == "low");
    CHECK(rejection<Level>("medium") == "value: expected one of the enumerators' names, got string \"medium\"");
    CHECK(rejection<Level>(5) != "taken");  // not taken for the first one
}
