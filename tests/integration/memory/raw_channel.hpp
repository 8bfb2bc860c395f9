#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/unique_fd.hpp"
#include "local/channel/packet.hpp"
#include "local/segments/segment.hpp"
#include "support/rpc.hpp"

namespace shared_tensor::test {

/// For results of a session that are to come in shared memory.
inline HeaderList by_memory(const std::string& session) {
    return {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Accept", "shm"}};
}

/// The local channel of a daemon, spoken by hand.
class RawChannel {
public:
    explicit RawChannel(int port) : RawChannel(call(port, "server.info")["local_socket"].get<std::string>()) {}
    explicit RawChannel(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::runtime_error("connect " + path);
        const timeval patience{10, 0};
        ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }

    using Descriptors = std::vector<std::shared_ptr<const UniqueFd>>;

    bool send(const std::string& text, const Descriptors& with = {}) {
        return local::send_packet(socket_.get(), {text, with}) == local::Sent::yes;
    }
    /// The next packet as it came; null when the daemon has closed the channel.
    Json receive() {
        char byte = 0;
        if (::recv(socket_.get(), &byte, 1, MSG_PEEK) <= 0) return nullptr;
        local::Packet packet;
        if (local::receive_packet(socket_.get(), packet) != local::Got::packet) return nullptr;
        descriptors = std::move(packet.descriptors);
        return Json::parse(packet.text);
    }
    /// The response object.
    Json ask(const std::string& method, const Json& params, const Descriptors& with = {}) {
        if (!send(call_object(method, params).dump(), with)) return nullptr;
        return receive();
    }
    std::string open() { return ask("session.open", Json::object())["result"]["session"]; }
    int fd() const { return socket_.get(); }

    std::vector<UniqueFd> descriptors;  ///< of the packet received last

private:
    UniqueFd socket_;
};

/// A tensor of float32 in shared memory, as an argument of a call.
inline Json tensor_in(const std::string& segment, const Json& offset, const Json& size, const Json& shape) {
    return {{"$tensor",
             {{"dtype", "float32"},
              {"shape", shape},
              {"shm", {{"segment", segment}, {"offset", offset}, {"size", size}}}}}};
}

/// A client by hand with a session, which lends the segment "good": one tensor of 65,536 float32.
class RawLender {
public:
    explicit RawLender(int port) : channel(port), session(channel.open()), port_(port) { offer("good", segment); }

    void offer(const std::string& name, const local::Segment& offered) {
        REQUIRE(channel.ask("segment.offer", {{"segment", name}, {"size", kBytes}}, {offered.descriptor()})
                    .contains("result"));
    }
    /// What the daemon sees from now on, if it still looks.
    void fill(float value) const { std::fill_n(reinterpret_cast<float*>(segment.data()), kCount, value); }
    static Json tensor() { return tensor_in("good", 0, kBytes, {kCount}); }
    HeaderList headers(const std::string& accept = "data") const {
        return {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Accept", accept}};
    }
    Json respond(const std::string& method, const Json& params, const std::string& accept = "data") const {
        return test::respond(port_, method, params, headers(accept));
    }

    static constexpr std::int64_t kCount = 1 << 16;
    static constexpr std::size_t kBytes = 4 * kCount;

    RawChannel channel;
    const std::string session;
    const local::Segment segment{kBytes};

private:
    const int port_;
};

}  // namespace shared_tensor::test
