#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>

#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace struct_test {

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

#define EIGHT(X) int X##0 = 0, X##1 = 1, X##2 = 2, X##3 = 3, X##4 = 4, X##5 = 5, X##6 = 6, X##7 = 7;
struct Wide {
    EIGHT(a) EIGHT(b) EIGHT(c) EIGHT(d) EIGHT(e) EIGHT(f) EIGHT(g) EIGHT(h)
};
#undef EIGHT
#define EIGHT(X) X##0, X##1, X##2, X##3, X##4, X##5, X##6, X##7
SHARED_TENSOR_FIELDS(Wide, EIGHT(a), EIGHT(b), EIGHT(c), EIGHT(d), EIGHT(e), EIGHT(f), EIGHT(g), EIGHT(h));
#undef EIGHT

}  // namespace struct_test
using namespace struct_test;

TEST_CASE("a struct is an object of its members", "[share][struct]") {
    CHECK(write(Point{1, 2.5}) == Json::parse(R"({"x": 1.0, "y": 2.5})"));
    CHECK(read<Point>(Json::parse(R"({"y": 2.5, "x": 1})")) == Point{1, 2.5});
}

TEST_CASE("a struct with one member, and one with sixty-four, travel too", "[share][struct]") {
    CHECK(read<One>(Json{{"only", 3}}).only == 3);
    const Json wide = write(Wide());
    CHECK(wide.size() == 64);
    CHECK(wide["h7"] == 7);
    CHECK(write(read<Wide>(wide)) == wide);
}

TEST_CASE("a missing member, an unknown one and a wrong one are rejected by name", "[share][struct]") {
    CHECK(rejection<Point>(Json{{"x", 1}}) == "value: expected member \"y\", got no such member");
    CHECK(rejection<Point>(Json::parse(R"({"x": 1, "y": 2, "z": 3})")) == "z: expected no such member, got number 3");
    CHECK(rejection<Point>(Json::parse(R"({"x": 1, "y": null})")) == "y: expected number, got null");
    CHECK(rejection<Point>({1, 2}) == "value: expected object, got array of 2");
}

TEST_CASE("an optional member may be left out or null", "[share][struct]") {
    const Json bare = Json::parse(R"({"corners": [], "marks": {}})");
    CHECK(read<Shape>(bare).colour == std::nullopt);
    Json with = bare;
    with["colour"] = nullptr;
    CHECK(read<Shape>(with).colour == std::nullopt);
    with["colour"] = "green";
    CHECK(read<Shape>(with).colour == Colour::green);
}

TEST_CASE("structs nest, and a fault deep inside has its whole path", "[share][struct]") {
    const Shape shape{{{1, 2}, {3, 4}}, Colour::red, {{"top", {5, 6}}}};
    CHECK(read<Shape>(write(shape)) == shape);
    Json broken = write(shape);
    broken["corners"][1]["y"] = "up";
    CHECK(rejection<Shape>(broken) == "corners[1].y: expected number, got string \"up\"");
    broken = write(shape);
    broken["marks"]["top"].erase("x");
    CHECK(rejection<Shape>(broken) == "marks.top: expected member \"x\", got no such member");
}

TEST_CASE("an enum is the name of its enumerator", "[share][struct]") {
    CHECK(write(Colour::green) == "green");
    CHECK(read<Colour>("red") == Colour::red);
    CHECK(rejection<Colour>("blue") == "value: expected one of \"red\" \"green\", got string \"blue\"");
    CHECK(rejection<Colour>(0) == "value: expected one of \"red\" \"green\", got number 0");
    CHECK(read<Plain>("kTwo") == kTwo);
    CHECK(write(kOne) == "kOne");
}

TEST_CASE("an enumerator that was not listed cannot be written", "[share][struct]") {
    CHECK_THROWS_AS(write(static_cast<Colour>(9)), std::invalid_argument);
}

TEST_CASE("tensors travel anywhere inside a struct", "[share][struct]") {
    const Json json = Json::parse(R"({"name": "s", "image": {"$tensor": {"name": "i"}},
                                      "layers": {"a": {"$tensor": {"name": "l"}}}, "mask": {"$tensor": {"name": "m"}}})");
    FakePort port;
    const codec::JsonSource source(port);
    const auto scene = Codec<Scene>::read(ValueReader(source, codec::JsonSource::node(json)));
    CHECK(name_in(scene.image) == "i");
    CHECK(name_in(scene.layers.at("a")) == "l");
    CHECK(name_in(*scene.mask) == "m");
    CHECK(write(scene) == json);
}

TEST_CASE("what stands where a tensor belongs is rejected with its place", "[share][struct]") {
    Json json = Json::parse(R"({"name": "s", "image": [[1, 2]], "layers": {}})");
    CHECK(rejection<Scene>(json) == "image: expected tensor, got array of 1");
    json["image"] = Json::parse(R"({"$tensor": {"name": 5}})");
    CHECK(rejection<Scene>(json) == "image.name: expected string, got nothing");
}
