// One daemon serves plugins of any libtorch, one libtorch in a process, and plugins that need none.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/client.hpp>
#include <shared_tensor/codecs.hpp>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string plugin(int number) { return SHARED_TENSOR_STUBS "/stub_plugin_" + std::to_string(number) + ".so"; }
std::string libtorch(int number) { return SHARED_TENSOR_STUBS "/" + std::to_string(number) + "/lib/libtorch_cpu.so"; }

std::string name_of(const char* function, int number) { return std::string(function) + '_' + std::to_string(number); }

}  // namespace

TEST_CASE("One daemon serves plugins of different libtorches, each in a process of its own", "[server][plugins]") {
    for (const int number : {1, 2}) {
        const Daemon daemon({"--load", plugin(number)});
        CHECK(Client(daemon.url()).call<int>(name_of("number", number)) == number);
    }
}

TEST_CASE("One daemon serves plugins of different libtorches at once, in worker processes",
          "[server][plugins][processes]") {
    const Daemon daemon({"--load", plugin(1) + "?processes=1", "--load", plugin(2) + "?processes=1"});
    const Client client(daemon.url());
    for (const int number : {1, 2})
        CHECK(client.call<int>(name_of("number", number)) == number);
}

TEST_CASE("A plugin of another libtorch than the one in the process is rejected with the paths of both",
          "[server][plugins]") {
    const Ended ended = run_daemon({"--port", "0", "--load", plugin(1), "--load", plugin(2)});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring(plugin(2)) && ContainsSubstring(libtorch(1)) &&
                              ContainsSubstring(libtorch(2)) && ContainsSubstring("one libtorch only"));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
}

TEST_CASE("A model that finds another libtorch in the process says so", "[server][plugins][models]") {
    TemporaryFolder folder;
    const Ended ended =
        run_daemon({"--port", "0", "--load", plugin(1), "--model", "m=" + folder.write("x.pt", "PK hello")});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("models need") && ContainsSubstring(libtorch(1)));
}

TEST_CASE("A server that finds no libtorch for a model says where it looked, and how to name one", "[server][models]") {
    TemporaryFolder folder;
    const std::string model = "m=" + folder.write("x.pt", "PK hello");
    const Ended named = run_daemon({"--port", "0", "--model", model, "--libtorch", folder.path()});
    CHECK(named.code == 1);
    CHECK_THAT(named.err, ContainsSubstring(folder.path() + ": not there") && ContainsSubstring("--libtorch"));
    folder.write("version.py", "__version__ = '1.2.3+cpu'\n");
    REQUIRE(mkdir(folder.file("lib").c_str(), 0700) == 0);
    folder.write("lib/libtorch_cpu.so", "");
    const Ended other = run_daemon({"--port", "0", "--model", model, "--libtorch", folder.path()});
    CHECK(other.code == 1);
    CHECK_THAT(other.err, ContainsSubstring("is libtorch 1.2.3"));
    ::unlink(folder.file("lib/libtorch_cpu.so").c_str());
    ::rmdir(folder.file("lib").c_str());
}

TEST_CASE("Functions may take tensors without any framework", "[server][plugins]") {
    const Daemon daemon({"--load", plugin(1)});
    const Client client(daemon.url());
    const TensorRef x = client.empty_in_shared_memory({300, 100}, DType::float32);
    auto* const numbers = reinterpret_cast<float*>(x.mutable_data());
    for (std::size_t i = 0; i < x.elements(); ++i)
        numbers[i] = static_cast<float>(i);
    Receipt receipt;
    const auto y = client.call<TensorRef>(receipt, "twice_1", x);
    CHECK(receipt.bytes_copied == 0);
    REQUIRE(y.elements() == x.elements());
    CHECK(reinterpret_cast<const float*>(y.data())[12'345] == 2 * 12'345);
}

TEST_CASE("A daemon without models and plugins of libtorch has none in its process", "[server]") {
    Daemon daemon;
    const std::string maps = text_of_file("/proc/" + std::to_string(daemon.child().pid()) + "/maps");
    CHECK_THAT(maps, !ContainsSubstring("libtorch") && !ContainsSubstring("libc10"));
}
