#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace {

std::string safetensors(std::string json, const std::string& data) {
    json.resize((json.size() + 7) / 8 * 8, ' ');
    std::string file;
    for (std::size_t i = 0; i < 8; ++i)
        file.push_back(static_cast<char>(json.size() >> (8 * i) & 0xFF));
    return file + json + data;
}

/// Two tensors, as another program writes them.
std::string some_file() {
    return safetensors(R"({"__metadata__":{"format":"pt"},"bias":{"dtype":"U8","shape":[3],"data_offsets":[16,19]},)"
                       R"("weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
                       std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\1\2\3", 19));
}

/// The same, as this program writes them: the biggest items first.
std::string our_file() {
    return safetensors(
        R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
        R"("bias":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})",
        some_file().substr(some_file().size() - 19));
}

}  // namespace

TEST_CASE("A safetensors file is published as a set and written again", "[cli][names]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string in = folder.write("weights.safetensors", some_file());
    const std::string out = folder.file("out.safetensors");
    const Ended put = client.run({"put", in});
    INFO(put.err);
    CHECK(put.code == 0);
    CHECK(put.out == "weights, version 1, 80 B\n");
    const Ended get = client.run({"get", "weights", "-o", out});
    INFO(get.err);
    CHECK(get.code == 0);
    CHECK(text_of_file(out) == our_file());
    CHECK_THAT(client.run({"get", "weights"}).out, ContainsSubstring("tensor float32 [2, 2]"));
    CHECK(client.run({"get", "weights/bias"}).out ==
          "weights/bias, version 1\n  format: pt\ntensor uint8 [3]\n  [1, 2, 3]\n");
    const Json json = Json::parse(client.run({"get", "weights", "--json"}).out);
    CHECK(json["members"]["bias"] == Json{{"dtype", "uint8"}, {"shape", {3}}});
    CHECK(json["metadata"]["format"] == "pt");
}

TEST_CASE("Files go to and from a server without shared memory as well", "[cli][names]") {
    const Daemon daemon({"--local-socket", "none"});
    const Words variables{"SHARED_TENSOR_URL=http://127.0.0.1:" + std::to_string(daemon.port())};
    const auto run = [&](const Words& words) {
        Words command{kClient};
        command.insert(command.end(), words.begin(), words.end());
        return run_program(command, variables);
    };
    TemporaryFolder folder;
    const std::string in = folder.write("weights.safetensors", some_file());
    const std::string out = folder.file("out.safetensors"), npy = folder.file("bias.npy");
    const Ended put = run({"put", in});
    INFO(put.err);
    CHECK(put.code == 0);
    CHECK_THAT(put.out, ContainsSubstring("weights, version 1, "));
    const Ended get = run({"get", "weights", "-o", out});
    INFO(get.err);
    CHECK(get.code == 0);
    CHECK(text_of_file(out) == our_file());
    CHECK(run({"get", "weights/bias", "-o", npy}).code == 0);
    CHECK(run({"get", "weights/bias"}).out == "weights/bias, version 1\n  format: pt\ntensor uint8 [3]\n  [1, 2, 3]\n");
    CHECK(run({"put", npy, "--name", "x"}).out == "x, version 1, 3 B\n");
    CHECK(run({"put", npy, "--name", "x", "--if-version", "0"}).code == 1);
    CHECK(run({"put", npy, "--name", "x", "--require", "body"}).code == 0);
    CHECK(run({"get", "y"}).code == 1);
}

TEST_CASE("A tensor of NumPy is published, listed, watched and deleted by its name", "[cli][names]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string npy = folder.file("out.npy");
    CHECK(client.run({"call", "scale", R"({"$tensor":{"data":[1.0,2.0]}})", "-o", npy}).code == 0);
    CHECK(client.run({"put", npy, "--name", "x", "--json"}).out == "{\"bytes\":8,\"name\":\"x\",\"version\":1}\n");
    CHECK(client.run({"put", npy, "--name", "x", "--if-version", "0"}).code == 1);
    CHECK(client.run({"put", npy, "--name", "x", "--if-version", "1"}).code == 0);
    CHECK_THAT(client.run({"tensors"}).out, ContainsSubstring("float32 [2]"));
    CHECK(client.run({"tensors", "--names"}).out == "x\n");
    CHECK(Json::parse(client.run({"tensors", "--json"}).out)["tensors"][0]["version"] == 2);
    CHECK(client.run({"watch", "x", "--after", "1"}).out == "x, version 2\n");
    CHECK(client.run({"watch", "x", "--timeout", "10ms"}).code == 4);
    CHECK(client.run({"delete", "x"}).code == 0);
    CHECK(client.run({"delete", "x"}).code == 1);
    CHECK(client.run({"get", "x"}).code == 1);
}

TEST_CASE("A result of tensors goes into a safetensors file", "[cli][names]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string out = folder.file("out.safetensors");
    CHECK(client.run({"call", "scale", R"({"$tensor":{"data":[1.0,2.0]}})", "-o", out}).code == 0);
    CHECK(text_of_file(out) == safetensors(R"({"tensor":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                           std::string("\0\0\0\x40\0\0\x80\x40", 8)));
    const Ended no = client.run({"call", "add", "1", "2", "-o", out});
    CHECK(no.code == 2);
    CHECK_THAT(no.err, ContainsSubstring("not an object of tensors"));
}

TEST_CASE("A file that cannot be published is exit code 2", "[cli][names]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    for (const std::string& file : {folder.write("bad.safetensors", "no tensors at all"), folder.write("a.txt", "text"),
                                    folder.file("none.safetensors"), folder.file("none.npy")}) {
        const Ended ended = client.run({"put", file});
        INFO(ended.err);
        CHECK(ended.code == 2);
        CHECK(ended.out.empty());
    }
    const std::string set = folder.write("set.safetensors", some_file());
    CHECK(client.run({"put", set}).code == 0);
    const Ended no = client.run({"get", "set", "-o", folder.file("set.npy")});
    CHECK(no.code == 2);
    CHECK_THAT(no.err, ContainsSubstring("set/MEMBER"));
}
