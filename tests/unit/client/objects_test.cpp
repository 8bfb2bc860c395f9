#include "client/local/lease_acknowledgements.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "support/forked_child.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

using Ids = std::vector<std::string>;

/// Releases a handle while no thread can start, and another one afterwards. Returns whether both are released.
bool releases_both() {
    Guarded<Ids> released;
    const auto objects = std::make_shared<client::Objects>([&](const Ids& ids) {
        released.with([&](Ids& all) { all.insert(all.end(), ids.begin(), ids.end()); });
        released.notify_all();
    });
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    leave_room(::getpid(), std::uint64_t{1} << 20);  // less than the stack of a thread
    objects->adopt("o-1", "Counter");
    ::setrlimit(RLIMIT_AS, &before);
    objects->adopt("o-2", "Counter");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    return released.lock().wait_until(deadline, [](const Ids& all) { return all == Ids{"o-1", "o-2"}; });
}

}  // namespace

TEST_CASE("A handle that finds no thread to release it is released with the next handle", "[client][objects]") {
    if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
    CHECK(in_child(&releases_both));  // a new process has no thread that releases handles
}
