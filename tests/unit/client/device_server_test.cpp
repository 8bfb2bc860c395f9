#include "client/local/device_server.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "base/concurrency/background.hpp"

using namespace shared_tensor;

TEST_CASE("A forked child that destroys its copy of a message asks the server nothing", "[client][devices]") {
    int asked = 0;
    auto message = std::make_unique<client::InFlight>([&](bool answered) { asked += answered ? 1 : 10; });
    const pid_t child = ::fork();
    if (child == 0) {
        message.reset();
        background_executor().flush();
        ::_exit(asked);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    message->answered();
    message.reset();
    background_executor().flush();
    CHECK(asked == 1);
}
