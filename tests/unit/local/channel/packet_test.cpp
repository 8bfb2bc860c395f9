#include "local/channel/packet.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "unit/local/channel/channel_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using local::Got;
using local::OutgoingPacket;
using local::Packet;
using local::Sent;

namespace {

struct Pair {
    Pair() {
        std::array<int, 2> ends{};
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
        left.reset(ends[0]);
        right.reset(ends[1]);
    }
    UniqueFd left, right;
};

/// As a peer sends them that keeps no bounds.
bool send_descriptors(int socket, std::size_t count, std::string_view text) {
    std::vector<int> all(count, 0);
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    iovec part{const_cast<char*>(text.data()), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), all.data(), count * sizeof(int));
    return ::sendmsg(socket, &message, 0) >= 0;
}

}  // namespace

TEST_CASE("a packet brings its text and its descriptors, closed on exec", "[local]") {
    const Pair pair;
    REQUIRE(local::send_packet(pair.left.get(), {"hello", {memory_with("one"), memory_with("two")}}) == Sent::yes);
    Packet packet;
    REQUIRE(local::receive_packet(pair.right.get(), packet) == Got::packet);
    CHECK(packet.text == "hello");
    REQUIRE(packet.descriptors.size() == 2);
    CHECK(text_behind(packet.descriptors[0]) == "one");
    CHECK(text_behind(packet.descriptors[1]) == "two");
    CHECK((::fcntl(packet.descriptors[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(local::receive_packet(pair.right.get(), packet) == Got::nothing);
    CHECK(packet.descriptors.empty());
}

TEST_CASE("packets at their bounds pass, beyond them nothing is sent", "[local]") {
    const Pair pair;
    std::vector<std::shared_ptr<const UniqueFd>> most(local::kMaxPacketDescriptors, memory_with("x"));
    const std::string longest(local::kMaxPacketBytes, 'x');
    REQUIRE(local::send_packet(pair.left.get(), {longest, most}) == Sent::yes);
    Packet packet;
    REQUIRE(local::receive_packet(pair.right.get(), packet) == Got::packet);
    CHECK(packet.text == longest);
    CHECK(packet.descriptors.size() == most.size());
    most.push_back(most.front());
    for (const OutgoingPacket& bad : {OutgoingPacket{longest + 'x', {}}, {"", {}}, {"x", most}}) {
        CHECK_THROWS_AS(local::send_packet(pair.left.get(), bad), std::length_error);
        local::Outbox outbox(std::size_t{1} << 20);
        CHECK(outbox.send(pair.left.get(), bad) == Sent::gone);
        CHECK(outbox.send(pair.left.get(), {"next", {}}) == Sent::yes);
    }
}

TEST_CASE("a packet beyond the bounds is told as one, and leaves no descriptor behind", "[local]") {
    const Pair pair;
    const std::size_t before = open_descriptors();
    Packet packet;
    SECTION("too long") {
        const std::string text(local::kMaxPacketBytes + 1, 'x');
        REQUIRE(::send(pair.left.get(), text.data(), text.size(), 0) > 0);
        CHECK(local::receive_packet(pair.right.get(), packet) == Got::too_big);
    }
    SECTION("empty") {
        REQUIRE(::send(pair.left.get(), "", 0, 0) == 0);
        CHECK(local::receive_packet(pair.right.get(), packet) == Got::end);
    }
    SECTION("too many descriptors") {
        REQUIRE(send_descriptors(pair.left.get(), 200, "x"));
        CHECK(local::receive_packet(pair.right.get(), packet) == Got::too_big);
    }
    SECTION("too long, with descriptors") {
        REQUIRE(send_descriptors(pair.left.get(), 3, std::string(local::kMaxPacketBytes + 1, 'x')));
        CHECK(local::receive_packet(pair.right.get(), packet) == Got::too_big);
    }
    CHECK(packet.text.empty());
    CHECK(packet.descriptors.empty());
    CHECK(open_descriptors() == before);
}

TEST_CASE("a peer that is gone is told from one that does not read", "[local]") {
    Pair pair;
    const OutgoingPacket packet{std::string(local::kMaxPacketBytes, 'x'), {}};
    Sent sent = Sent::yes;
    for (int i = 0; i < 1000 && sent == Sent::yes; ++i)
        sent = local::send_packet(pair.left.get(), packet);
    CHECK(sent == Sent::not_now);
    pair.right.reset();
    CHECK(local::send_packet(pair.left.get(), packet) == Sent::gone);
    Packet none;
    CHECK(local::receive_packet(pair.left.get(), none) == Got::end);
}
