#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unix_listener.hpp"
#include "local/channel/channel.hpp"
#include "local/channel/channel_server.hpp"
#include "support/daemon.hpp"
#include "support/event.hpp"
#include "support/process.hpp"

namespace shared_tensor::test {

/// A memfd that holds `text`.
inline std::shared_ptr<const UniqueFd> memory_with(std::string_view text) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw std::runtime_error("no memory for a test");  // on any thread
    return std::make_shared<const UniqueFd>(std::move(fd));
}

inline std::string text_behind(const UniqueFd& fd) {
    struct stat found {};
    ::fstat(fd.get(), &found);
    std::string text(static_cast<std::size_t>(found.st_size), '\0');
    return ::pread(fd.get(), text.data(), text.size(), 0) < 0 ? "" : text;
}

/// Notes what happens; `on_packet` may answer.
class Recorder final : public local::ChannelHandler {
public:
    bool opened(local::ChannelId id, const local::Peer& peer) override {
        state.with([&](State& held) {
            held.opened.push_back(id);
            held.peers.push_back(peer);
        });
        opens.set();
        return welcome;
    }
    void received(local::ChannelId id, local::Packet packet) override {
        if (on_packet) on_packet(id, packet);
        state.with([&](State& held) { held.packets.push_back(std::move(packet)); });
        packets.set();
    }
    void closed(local::ChannelId id) override {
        state.with([&](State& held) { held.closed.push_back(id); });
        closes.set();
    }

    local::ChannelId first() {
        return state.with([](const State& held) { return held.opened.at(0); });
    }

    struct State {
        std::vector<local::ChannelId> opened, closed;
        std::vector<local::Peer> peers;
        std::vector<local::Packet> packets;
    };
    Guarded<State> state;
    Event opens, packets, closes;
    bool welcome = true;
    std::function<void(local::ChannelId, const local::Packet&)> on_packet;
};

/// A server in a folder of its own, and what it told.
struct ChannelUnderTest {
    explicit ChannelUnderTest(std::size_t max_channels = 1024) {
        options.path = folder.file("s");
        options.max_channels = max_channels;
        options.max_waiting_bytes = 256 << 10;
        options.settle_within = std::chrono::minutes(1);
        restart();
    }
    void restart() {
        server.reset();
        server = std::make_unique<local::ChannelServer>(options, recorder);
        server->start();
    }

    TemporaryFolder folder;
    Recorder recorder;
    local::ChannelServerOptions options;
    std::unique_ptr<local::ChannelServer> server;
};

/// A client that notes what it gets.
struct ClientEnd {
    explicit ClientEnd(const std::string& path)
        : channel(path, {[this](const json_rpc::Request& request) {
                             got.with([&](auto& all) { all.push_back(request.method); });
                             packets.set();
                         },
                         [this] { ended.set(); }}) {}
    bool tell(const char* method) { return channel.tell(method, "list", {}); }

    Guarded<std::vector<std::string>> got;  // methods
    Event packets, ended;
    local::Channel channel;  // last: the rest is there when its thread starts
};

/// A plain socket, for peers that do what ours does not.
inline UniqueFd raw_connect(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = unix_address(path);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return fd;
}

}  // namespace shared_tensor::test
