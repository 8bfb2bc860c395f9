#include "server/option_table.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor::server;

namespace {

constexpr DescriptorShares kWanted{4096, 256, 1024, 16'384, 16'384};

std::size_t descriptors_of(const DescriptorShares& shares) {
    return shares.connections + shares.web_sockets + 2 * shares.local_channels + shares.own_segments +
           shares.clients_segments;
}

}  // namespace

TEST_CASE("Whatever the limit of open files is, its shares leave a reserve", "[server]") {
    for (const std::size_t free : {64, 220, 256, 1000, 5000, 20'000, 65'536, 1'000'000}) {
        INFO(free);
        const DescriptorShares shares = share_descriptors(kWanted, 0, free);
        CHECK(descriptors_of(shares) + 16 <= free);
        for (const std::size_t share : {shares.connections, shares.web_sockets, shares.local_channels,
                                        shares.own_segments, shares.clients_segments})
            CHECK(share > 0);
    }
}

TEST_CASE("With enough descriptors everything is as it was asked for", "[server]") {
    const DescriptorShares shares = share_descriptors(kWanted, 0, 1'000'000);
    CHECK(shares.connections == 4096);
    CHECK(shares.web_sockets == 256);
    CHECK(shares.local_channels == 1024);
    CHECK(shares.own_segments == 16'384);
    CHECK(shares.clients_segments == 16'384);
}

TEST_CASE("What connections do not need is for segments", "[server]") {
    const DescriptorShares many = share_descriptors(kWanted, 0, 1000);
    const DescriptorShares few = share_descriptors({8, 1, 1, 16'384, 16'384}, 0, 1000);
    CHECK(few.own_segments > many.own_segments);
    CHECK(descriptors_of(few) <= 1000 - 16);
}

TEST_CASE("As many segments as the operator asks for", "[server]") {
    const DescriptorShares shares = share_descriptors(kWanted, 40'000, 1000);
    CHECK(shares.own_segments == 20'000);
    CHECK(shares.clients_segments == 20'000);
}

TEST_CASE("Without a descriptor left everything has one all the same", "[server]") {
    const DescriptorShares shares = share_descriptors(kWanted, 0, 0);
    CHECK(shares.connections == 1);
    CHECK(shares.own_segments == 1);
}
