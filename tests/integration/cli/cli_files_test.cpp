// Tensors and JSON in files, and named tensors, on the command line.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "integration/cli/run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace {

struct Files : CommandLineClient {
    TemporaryFolder folder;
};

/// A .npy file of version 1, as NumPy writes it: floats in rows of `columns`.
std::string npy(const std::vector<float>& values, std::size_t columns) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                         std::to_string(values.size() / columns) + ", " + std::to_string(columns) + "), }";
    header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
    std::string file("\x93NUMPY\x01\x00", 8);
    file.push_back(static_cast<char>(header.size() & 0xFF));
    file.push_back(static_cast<char>(header.size() >> 8));
    return file + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::string safetensors(std::string json, const std::string& data) {
    json.resize((8 + json.size() + 63) / 64 * 64 - 8, ' ');
    std::string file(8, '\0');
    const std::uint64_t size = json.size();
    std::memcpy(file.data(), &size, 8);
    return file + json + data;
}

const std::string kElements("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\1\2\3", 19);
const std::string kWeight = R"("weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})",
                  kBias = R"("bias":{"dtype":"U8","shape":[3],"data_offsets":[16,19]})",
                  kBegin = R"({"__metadata__":{"format":"pt"},)";
/// Two tensors, as another program writes them, and as this program does: the biggest items first.
std::string some_file() { return safetensors(kBegin + kBias + ',' + kWeight + '}', kElements); }
std::string our_file() { return safetensors(kBegin + kWeight + ',' + kBias + '}', kElements); }

constexpr const char* kTwo = R"({"$tensor":{"data":[1.0,2.0]}})";

}  // namespace

TEST_CASE_METHOD(Files, "A tensor comes from a file of NumPy, goes to one, and is shown", "[cli]") {
    const std::string in = folder.write("in.npy", npy({0, 1, 2, 3, 4, 5}, 3)), out = folder.file("out.npy");
    const Ended ended = run({"call", "scale", "x=@" + in, "factor=3", "-o", out});
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.empty());
    CHECK(ended.err == out + ": tensor float32 [2, 3]\n");
    CHECK(text_of_file(out) == npy({0, 3, 6, 9, 12, 15}, 3));
    CHECK(run({"call", "scale", "@" + in}).out == "tensor float32 [2, 3]\n  [[0.0, 2.0, 4.0],\n   [6.0, 8.0, 10.0]]\n");
    const std::string big = folder.write("big.npy", npy(std::vector<float>(1000, 1), 1000));
    CHECK(run({"call", "scale", "@" + big}).out ==
          "tensor float32 [1, 1000]\n  [[2.0, 2.0, 2.0, ..., 2.0, 2.0, 2.0]]\n");
    const Json tensor = Json::parse(run({"call", "scale", kTwo, "--json"}).out).at("$tensor");
    CHECK(tensor.at("dtype") == "float32");
    CHECK(tensor.at("data") == Json{2.0, 4.0});
}

TEST_CASE_METHOD(Files, "Nested arrays of numbers are a tensor where a parameter is one", "[cli]") {
    CHECK(run({"call", "scale", "x=[[1,2],[3,4]]", "factor=3"}).out ==
          "tensor float32 [2, 2]\n  [[3.0, 6.0],\n   [9.0, 12.0]]\n");
    const Ended ragged = run({"call", "scale", "x=[[1,2],[3]]"});
    CHECK(ragged.code != 0);
    CHECK(ragged.err.find("x[1]: expected array of 2, got array of 1") != std::string::npos);
    CHECK(run({"call", "scale", "x=[1,\"a\"]"}).err.find("x[1]: expected ") != std::string::npos);
}

TEST_CASE_METHOD(Files, "JSON and tensors of a result go into files", "[cli]") {
    const std::string json = folder.file("out.json"), set = folder.file("out.safetensors");
    CHECK(run({"call", "echo", "@" + folder.write("in.json", R"({"a": [1, 2]})"), "--output", json}).code == 0);
    CHECK(Json::parse(text_of_file(json)) == Json{{"a", {1, 2}}});
    CHECK(run({"call", "scale", kTwo, "-o", set}).code == 0);
    CHECK(text_of_file(set) == safetensors(R"({"tensor":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                           std::string("\0\0\0\x40\0\0\x80\x40", 8)));
}

TEST_CASE_METHOD(Files, "A file that is not right is exit code 2, and nothing is called or published", "[cli][names]") {
    struct Case {
        Words words;
        const char* says = "";
    };
    REQUIRE(run({"put", folder.write("set.safetensors", some_file())}).code == 0);
    for (const auto& [words, says] : std::initializer_list<Case>{
             {{"call", "echo", "@" + folder.file("none.json")}},
             {{"call", "echo", "@" + folder.write("bad.npy", "no numbers")}},
             {{"call", "echo", "@" + folder.write("bad.json", "{")}},
             {{"call", "echo", "@file.txt"}},
             {{"call", "echo", "1", "-o", "result.txt"}},
             {{"call", "add", "1", "2", "-o", folder.file("out.npy")}, "the result is not one tensor"},
             {{"call", "add", "1", "2", "-o", folder.file("out.safetensors")}, "not an object of tensors"},
             {{"put", folder.write("bad.safetensors", "no tensors at all")}},
             {{"put", folder.write("a.txt", "text")}},
             {{"put", folder.file("none.safetensors")}},
             {{"put", folder.file("none.npy")}},
             {{"get", "set", "-o", folder.file("set.npy")}, "set/MEMBER"},
         }) {
        const Ended ended = run(words);
        INFO(words.back() << " " << ended.err);
        CHECK(ended.code == 2);
        CHECK(ended.out.empty());
        CHECK_THAT(ended.err, ContainsSubstring(says));
    }
}

TEST_CASE_METHOD(Files, "A safetensors file is published as a set and written again, also without shared memory",
                 "[cli][names]") {
    const Daemon without({"--local-socket", "none"});
    const bool shares = GENERATE(true, false);
    CAPTURE(shares);
    const auto run = [&](const Words& words) {
        return run_client(joined({"--url", shares ? daemon.url() : without.url()}, words));
    };
    const std::string out = folder.file("out.safetensors"), npy = folder.file("bias.npy");
    const Ended put = run({"put", folder.write("weights.safetensors", some_file())});
    INFO(put.err);
    CHECK(put.code == 0);
    CHECK_THAT(put.out, ContainsSubstring(shares ? "weights, version 1, 80 B\n" : "weights, version 1, "));
    const Ended get = run({"get", "weights", "-o", out});
    INFO(get.err);
    CHECK(get.code == 0);
    CHECK(text_of_file(out) == our_file());
    CHECK_THAT(run({"get", "weights"}).out, ContainsSubstring("tensor float32 [2, 2]"));
    CHECK(run({"get", "weights/bias"}).out == "weights/bias, version 1\n  format: pt\ntensor uint8 [3]\n  [1, 2, 3]\n");
    const Json json = Json::parse(run({"get", "weights", "--json"}).out);
    CHECK(json["members"]["bias"] == Json{{"dtype", "uint8"}, {"shape", {3}}});
    CHECK(json["metadata"]["format"] == "pt");
    const std::string noted = R"({"__metadata__":{"note":"\u001b[2J"},)" + kBias + ',' + kWeight + '}';
    CHECK(run({"put", folder.write("noted.safetensors", safetensors(noted, kElements))}).code == 0);
    CHECK_THAT(run({"get", "noted"}).out, ContainsSubstring("  note:  [2J\n"));
    const Ended latin = run({"put", folder.write("caf\xe9.npy", "")});
    CHECK(latin.code == 2);
    CHECK_THAT(latin.err, ContainsSubstring("is not UTF-8: give one with --name"));
    const std::string inner = folder.file("folder.npy");
    std::filesystem::create_directory(inner);
    CHECK_THAT(run({"put", inner}).err, ContainsSubstring("is a folder"));
    CHECK(run({"get", "weights/bias", "-o", npy}).code == 0);
    CHECK(run({"put", npy, "--name", "x"}).out == "x, version 1, 3 B\n");
    CHECK(run({"put", npy, "--name", "x", "--if-version", "0"}).code == 1);
    CHECK(run({"put", npy, "--name", "x", "--require", shares ? "shm" : "body"}).code == 0);
    CHECK(run({"put", npy, "--name", "x", "--as-version", "70"}).out == "x, version 70, 3 B\n");
    CHECK(run({"put", npy, "--name", "x", "--as-version", "70"}).code == 1);
    CHECK(run({"get", "y"}).code == 1);

    const std::string changed = folder.file("changed.safetensors");
    CHECK(run({"get", "weights", "-o", changed}).code == 0);
    const Words put_changed{"put", changed, "--name", "weights", "--base", "1"};
    CHECK_THAT(run(put_changed).out, ContainsSubstring("weights, version 2, "));
    CHECK(Json::parse(run({"get", "weights", "--json"}).out)["members"].size() == json["members"].size());
    CHECK(run(put_changed).code == 1);
    const std::string again = folder.file("again.safetensors");
    CHECK(run({"get", "weights", "-o", again, "--previous", changed}).code == 0);
    CHECK(text_of_file(again) == text_of_file(changed));
    const Ended missing = run({"get", "weights", "--previous", folder.file("nothing.safetensors")});
    CHECK(missing.code == (shares ? 0 : 2));
    if (!shares) CHECK_THAT(missing.err, ContainsSubstring("nothing.safetensors"));
}

TEST_CASE_METHOD(Files, "A tensor of NumPy is published, listed, watched and deleted by its name", "[cli][names]") {
    const std::string npy = folder.file("out.npy");
    CHECK(run({"call", "scale", kTwo, "-o", npy}).code == 0);
    CHECK(run({"put", npy, "--name", "x", "--json"}).out == "{\"bytes\":8,\"name\":\"x\",\"version\":1}\n");
    CHECK(run({"put", npy, "--name", "x", "--if-version", "1"}).code == 0);
    CHECK_THAT(run({"tensors"}).out, ContainsSubstring("float32 [2]"));
    CHECK(run({"tensors", "--names"}).out == "x\n");
    CHECK(Json::parse(run({"tensors", "--json"}).out)["tensors"][0]["version"] == 2);
    CHECK(run({"watch", "x", "--after", "1"}).out == "x, version 2\n");
    CHECK(run({"watch", "x", "--timeout", "10ms"}).code == 4);
    CHECK(run({"delete", "x"}).code == 0);
    CHECK(run({"delete", "x"}).code == 1);
    CHECK(run({"get", "x"}).code == 1);
}
