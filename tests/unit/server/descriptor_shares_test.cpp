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

TEST_CASE("With enough descriptors everything is as it was asked for, and without any everything has one", "[server]") {
    for (const auto& [free, asked] : {std::pair{1'000'000, kWanted}, {0, DescriptorShares{1, 1, 1, 1, 1}}}) {
        const DescriptorShares shares = share_descriptors(kWanted, 0, static_cast<std::size_t>(free));
        CHECK(shares.connections == asked.connections);
        CHECK(shares.web_sockets == asked.web_sockets);
        CHECK(shares.local_channels == asked.local_channels);
        CHECK(shares.own_segments == asked.own_segments);
        CHECK(shares.clients_segments == asked.clients_segments);
    }
}

TEST_CASE("Segments have what connections do not need, or as many as the operator asks for", "[server]") {
    const DescriptorShares few = share_descriptors({8, 1, 1, 16'384, 16'384}, 0, 1000);
    CHECK(few.own_segments > share_descriptors(kWanted, 0, 1000).own_segments);
    CHECK(descriptors_of(few) <= 1000 - 16);
    const DescriptorShares asked = share_descriptors(kWanted, 40'000, 1000);
    CHECK(asked.own_segments == 20'000);
    CHECK(asked.clients_segments == 20'000);
}
