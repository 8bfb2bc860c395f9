#include "client/local/shared_memory.hpp"

#include <catch2/catch_test_macros.hpp>

#include "base/concurrency/background.hpp"
#include "support/forked_child.hpp"

using namespace shared_tensor;

TEST_CASE("A forked child that destroys its copy of a message asks the server nothing", "[client][devices]") {
    int asked = 0;
    auto message = std::make_unique<client::InFlight>([&](bool answered) { asked += answered ? 1 : 10; });
    const auto asked_at_its_end = [&] {
        message.reset();
        background_executor().flush();
        return asked;
    };
    CHECK(test::in_child([&] { return asked_at_its_end() == 0; }));
    message->answered();
    CHECK(asked_at_its_end() == 1);
}
