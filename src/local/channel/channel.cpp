#include "local/channel/channel.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/concurrency/clock.hpp"
#include "base/system/unix_listener.hpp"

namespace shared_tensor::local {

namespace {

ProcessFd connect_to(const std::string& path) {
    const std::string what = "cannot connect to the local channel " + path;
    const sockaddr_un address = unix_address(path);
    ProcessFd fd = ProcessFd::opened([&] {
        return SHARED_TENSOR_CHECK_ERRNO(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), what);
    });
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), what);
    return fd;
}

}  // namespace

Channel::Channel(const std::string& path, Events events)
    : events_(std::move(events)), socket_(connect_to(path)), peer_(peer_of(socket_.get())) {
    stop_ = UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    thread_ = std::make_unique<std::jthread>([this] { receive(); });
    ::pthread_setname_np(thread_->native_handle(), "st-channel");
}

/// In a forked child the thread does not exist, and its handle may name another thread. So it is neither joined nor
/// detached.
Channel::~Channel() {
    close();
    if (!process_.is_here()) static_cast<void>(thread_.release());
}

void Channel::close() {
    if (!process_.is_here()) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    if (thread_->joinable()) thread_->join();
    gone_.store(true);
    ::shutdown(socket_.get(), SHUT_RDWR);
}

bool Channel::send(const OutgoingPacket& packet, std::chrono::milliseconds patience) {
    if (!process_.is_here()) return false;
    const SteadyTime deadline = real_clock().now() + patience;
    while (!gone_.load()) {
        switch (send_packet(socket_.get(), packet)) {
            case Sent::yes: return true;
            case Sent::gone: return false;
            case Sent::not_now: break;
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - real_clock().now());
        if (left.count() <= 0) return false;
        pollfd writable{socket_.get(), POLLOUT, 0};
        ::poll(&writable, 1, static_cast<int>(left.count()));
    }
    return false;
}

void Channel::receive() {
    for (;;) {
        std::array<pollfd, 2> polled{{{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}}};
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
        if (polled[0].revents != 0) return;
        Packet packet;
        const Got got = receive_packet(socket_.get(), packet);
        if (got == Got::end || got == Got::too_big || packet.lost_descriptors) break;
        if (got == Got::packet && events_.received) events_.received(std::move(packet));
    }
    gone_.store(true);
    if (events_.ended) events_.ended();
}

}  // namespace shared_tensor::local
