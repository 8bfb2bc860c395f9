#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace {

/// A .npy file of version 1, as NumPy writes it: floats in rows of `columns`.
std::string npy(const std::vector<float>& values, std::size_t columns) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                         std::to_string(values.size() / columns) + ", " + std::to_string(columns) + "), }";
    header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
    std::string file("\x93NUMPY\x01\x00", 8);
    file.push_back(static_cast<char>(header.size() & 0xFF));
    file.push_back(static_cast<char>(header.size() >> 8));
    file += header;
    const std::size_t begin = file.size();
    file.resize(begin + values.size() * sizeof(float));
    std::memcpy(file.data() + begin, values.data(), values.size() * sizeof(float));
    return file;
}

}  // namespace

TEST_CASE("A tensor comes from a file of NumPy and goes to one", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string in = folder.write("in.npy", npy({0, 1, 2, 3, 4, 5}, 3));
    const std::string out = folder.file("out.npy");
    const Ended ended = client.run({"call", "scale", "x=@" + in, "factor=3", "-o", out});
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.empty());
    CHECK(ended.err == out + ": tensor float32 [2, 3]\n");
    CHECK(text_of_file(out) == npy({0, 3, 6, 9, 12, 15}, 3));
}

TEST_CASE("A tensor is shown with its type, shape and elements", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string in = folder.write("in.npy", npy({0, 1, 2, 3, 4, 5}, 3));
    CHECK(client.run({"call", "scale", "@" + in}).out ==
          "tensor float32 [2, 3]\n  [[0.0, 2.0, 4.0],\n   [6.0, 8.0, 10.0]]\n");
}

TEST_CASE("Of a big tensor the edges are shown", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string in = folder.write("in.npy", npy(std::vector<float>(1000, 1), 1000));
    CHECK(client.run({"call", "scale", "@" + in}).out ==
          "tensor float32 [1, 1000]\n  [[2.0, 2.0, 2.0, ..., 2.0, 2.0, 2.0]]\n");
}

TEST_CASE("For programs a tensor is its descriptor", "[cli]") {
    const CommandLineClient client;
    const Ended ended = client.run({"call", "scale", R"({"$tensor":{"data":[1.5,2]}})", "--json"});
    const Json tensor = Json::parse(ended.out).at("$tensor");
    CHECK(tensor.at("dtype") == "float32");
    CHECK(tensor.at("data") == Json{3.0, 4.0});
}

TEST_CASE("JSON comes from a file and goes to one", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string in = folder.write("in.json", R"({"a": [1, 2]})");
    const std::string out = folder.file("out.json");
    CHECK(client.run({"call", "echo", "@" + in, "--output", out}).code == 0);
    CHECK(Json::parse(text_of_file(out)) == Json{{"a", {1, 2}}});
}

TEST_CASE("A result that is no tensor does not go into a file of NumPy", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const Ended ended = client.run({"call", "add", "1", "2", "-o", folder.file("out.npy")});
    CHECK(ended.code == 2);
    CHECK_THAT(ended.err, ContainsSubstring("the result is not one tensor"));
}

TEST_CASE("A file that is not right is exit code 2, and nothing is called", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string bad_npy = folder.write("bad.npy", "no numbers");
    const std::string bad_json = folder.write("bad.json", "{");
    for (const Words& words : {Words{"call", "echo", "@" + folder.file("none.json")},
                               Words{"call", "echo", "@" + bad_npy}, Words{"call", "echo", "@" + bad_json},
                               Words{"call", "echo", "@file.txt"}, Words{"call", "echo", "1", "-o", "result.txt"}}) {
        const Ended ended = client.run(words);
        INFO(words.back() << " " << ended.err);
        CHECK(ended.code == 2);
        CHECK(ended.out.empty());
    }
}
