#include "tensor/transports/transport_kind.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor::tensor;

TEST_CASE("every transport is found by its name", "[tensor]") {
    for (const TransportKind transport : kTransportKinds)
        CHECK(parse_transport(name_of(transport)) == transport);
    CHECK_FALSE(parse_transport("Body").has_value());
}

TEST_CASE("a list of transports keeps their order, drops repetitions and gives unknown words apart", "[tensor]") {
    const TransportList requested = parse_transports(" shm ,body,, rdma,\tshm , rdma, data");
    CHECK(requested.transports ==
          std::vector<TransportKind>{TransportKind::shm, TransportKind::body, TransportKind::data});
    CHECK(requested.unknown == std::vector<std::string>{"rdma"});
    CHECK(join(requested.transports) == "shm, body, data");
}

TEST_CASE("an empty list of transports has none", "[tensor]") {
    for (const auto* list : {"", " ", ",", " , "}) {
        CHECK(parse_transports(list).transports.empty());
        CHECK(parse_transports(list).unknown.empty());
    }
}
