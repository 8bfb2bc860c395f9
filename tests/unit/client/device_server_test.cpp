#include "client/local/device_server.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;

TEST_CASE("A forked child that destroys its copy of a message asks the server nothing", "[client][devices]") {
    int asked = 0;
    tensor::Exports exports;  // outlives the block that is lent
    const auto channel = std::make_shared<int>();
    client::DeviceServer server({[](const std::string&) {}, [](const std::string&) {},
                                 [](const auto&, bool) { return std::vector<std::string>(); },
                                 [&](const std::function<void()>&) { ++asked; }, [&] { return channel; }});
    auto message = server.lend(std::make_shared<const tensor::LentBlock>(TensorRef(), tensor::IpcBytes(),
                                                                         tensor::DevicePlace(), nullptr, exports));
    const pid_t child = ::fork();
    if (child == 0) {
        message.held.reset();
        ::_exit(asked);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    message.held.reset();
    CHECK(asked == 1);
}
