#include "local/channel/channel_server.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::local {

namespace {

// The keys of epoll events. A channel's socket and its process have different keys.
constexpr std::uint64_t kWake = 0, kListener = 1;
constexpr std::uint64_t socket_key(ChannelId id) { return id * 2; }
constexpr std::uint64_t process_key(ChannelId id) { return id * 2 + 1; }

constexpr int kPacketsAtOnce = 16;  // of one channel, before other channels are served
constexpr std::chrono::milliseconds kAcceptAgain{100};

}  // namespace

struct ChannelServer::Connection {
    Connection(ProcessFd the_socket, std::size_t max_waiting) : socket(std::move(the_socket)), outbox(max_waiting) {}
    ProcessFd socket;
    UniqueFd process;
    Outbox outbox;
};

ChannelServer::ChannelServer(ChannelServerOptions options, ChannelHandler& handler)
    : options_(std::move(options)), handler_(handler), listener_(options_.path, SOCK_SEQPACKET) {
    epoll_.reset(SHARED_TENSOR_CHECK_ERRNO(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    wake_.reset(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWake);
    watch(EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, kListener);
}

void ChannelServer::start() {
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
    ::pthread_setname_np(thread_.native_handle(), "st-local");
}

void ChannelServer::stop() {
    thread_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
}

bool ChannelServer::send(ChannelId id, OutgoingPacket packet) {
    const ConnectionPointer connection = find(id);
    if (connection == nullptr) return false;
    switch (connection->outbox.send(connection->socket.get(), std::move(packet))) {
        case Sent::yes: break;
        case Sent::not_now: want_to_write(id, *connection, true); break;
        case Sent::gone: close(id); return false;
    }
    return true;
}

void ChannelServer::settled(ChannelId id) {
    new_.with([&](auto& deadlines) { deadlines.erase(id); });
}

/// Shows the end to both sides: the loop receives it too, and drops the channel.
void ChannelServer::close(ChannelId id) {
    if (const ConnectionPointer connection = find(id)) ::shutdown(connection->socket.get(), SHUT_RDWR);
}

std::size_t ChannelServer::size() const {
    return channels_.with([](const auto& channels) { return channels.size(); });
}

void ChannelServer::watch(int operation, int fd, std::uint32_t events, std::uint64_t key) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    SHARED_TENSOR_CHECK_ERRNO(::epoll_ctl(epoll_.get(), operation, fd, &event), "epoll_ctl");
}

void ChannelServer::want_to_write(ChannelId id, const Connection& connection, bool wanted) const {
    epoll_event event{};
    event.events = EPOLLIN | (wanted ? EPOLLOUT : 0U);
    event.data.u64 = socket_key(id);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);  // it may be closed already
}

ChannelServer::ConnectionPointer ChannelServer::find(ChannelId id) const {
    return channels_.with([&](const auto& channels) {
        const auto found = channels.find(id);
        return found == channels.end() ? nullptr : found->second;
    });
}

void ChannelServer::serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        std::array<epoll_event, 64> events{};
        const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout());
        if (!std::exchange(accepting_, true)) watch(EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, kListener);
        for (int i = 0; i < count; ++i)
            handle(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
        close_overdue();
    }
    std::vector<ChannelId> left;
    channels_.with([&](const auto& channels) {
        for (const auto& [id, connection] : channels)
            left.push_back(id);
    });
    for (const ChannelId id : left)
        drop(id);
}

/// The timeout for epoll_wait() in milliseconds; -1: none.
int ChannelServer::timeout() const {
    using std::chrono::milliseconds;
    const auto first = oldest_new();
    if (!accepting_) return static_cast<int>(kAcceptAgain.count());
    if (!first) return -1;
    const auto left = std::chrono::ceil<milliseconds>(first->second - real_clock().now());
    return static_cast<int>(std::clamp(left, milliseconds(0), milliseconds(60'000)).count());
}

/// Ids grow, so the channel with the smallest id is the oldest and has the first deadline.
std::optional<std::pair<ChannelId, SteadyTime>> ChannelServer::oldest_new() const {
    return new_.with([](const auto& deadlines) -> std::optional<std::pair<ChannelId, SteadyTime>> {
        return deadlines.empty() ? std::nullopt : std::optional(*deadlines.begin());
    });
}

void ChannelServer::close_overdue() {
    while (const auto first = oldest_new()) {
        if (first->second > real_clock().now()) return;
        log::debug("a client's local channel is closed: the client opened no session in time");
        drop(first->first);
    }
}

/// Closes the oldest new channel if there are too many. Returns false if there are too many and none is new.
bool ChannelServer::make_room() {
    const auto first = oldest_new();
    const std::size_t count_of_new = new_.with([](const auto& deadlines) { return deadlines.size(); });
    if (count_of_new < options_.max_new && size() < options_.max_channels) return true;
    if (first) drop(first->first);
    return first.has_value();
}

/// If memory is exhausted while a channel is served, only this channel is closed.
void ChannelServer::handle(std::uint64_t key, std::uint32_t events) {
    if (key == kWake) return;  // the loop ends
    if (key == kListener) return accept_some();
    const ChannelId id = key / 2;
    if (key == process_key(id)) return drop(id);  // its process ended
    try {
        serve_channel(id, events);
    } catch (const std::exception& error) {
        log::error("a client's local channel is closed: ", error.what());
        drop(id);
    }
}

void ChannelServer::serve_channel(ChannelId id, std::uint32_t events) {
    const ConnectionPointer connection = find(id);
    if (connection == nullptr) return;  // dropped by an event before this one
    if ((events & EPOLLOUT) != 0 && !flush(id, *connection)) return drop(id);
    for (int i = 0; i < kPacketsAtOnce; ++i) {
        Packet packet;
        switch (receive_packet(connection->socket.get(), packet)) {
            case Got::nothing: return;
            case Got::too_big: handler_.received(id, {}); return drop(id);
            case Got::end: return drop(id);
            case Got::packet: handler_.received(id, std::move(packet)); break;
        }
    }
}

/// EPOLLOUT is disabled before the flush, so that a concurrent send() that queues packets can enable it again.
bool ChannelServer::flush(ChannelId id, Connection& connection) const {
    want_to_write(id, connection, false);
    const Sent sent = connection.outbox.flush(connection.socket.get());
    if (sent == Sent::not_now) want_to_write(id, connection, true);
    return sent != Sent::gone;
}

void ChannelServer::accept_some() {
    for (int i = 0; i < kPacketsAtOnce; ++i) {
        ProcessFd socket = ProcessFd::opened(
            [&] { return ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (socket) {
            complained_ = false;
            open(std::move(socket));
            continue;
        }
        if (errno == EAGAIN) return;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (!std::exchange(complained_, true))
            log::warn("the local channel cannot accept a client (", std::strerror(errno), "); trying again");
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
        accepting_ = false;
        return;
    }
}

/// Closes the channel of a client that cannot be watched; the client continues over HTTP alone.
void ChannelServer::open(ProcessFd socket) {
    if (!make_room()) {
        log::warn("a client's local channel is rejected: ", options_.max_channels,
                  " clients are connected already (--max-local-channels)");
        return;
    }
    const ChannelId id = next_id_++;
    try {
        const Peer peer = peer_of(socket.get());
        const auto connection = std::make_shared<Connection>(std::move(socket), options_.max_waiting_bytes);
        connection->process = process_of(connection->socket.get(), peer);
        channels_.with([&](auto& channels) { channels.emplace(id, connection); });
        new_.with([&](auto& deadlines) { deadlines.emplace(id, real_clock().now() + options_.settle_within); });
        watch(EPOLL_CTL_ADD, connection->socket.get(), EPOLLIN, socket_key(id));
        if (connection->process) watch(EPOLL_CTL_ADD, connection->process.get(), EPOLLIN, process_key(id));
        if (!handler_.opened(id, peer)) forget(id);
    } catch (const std::exception& error) {
        log::warn("a client's local channel is closed: ", error.what());
        if (find(id) != nullptr) forget(id);
    }
}

void ChannelServer::drop(ChannelId id) {
    if (find(id) == nullptr) return;
    forget(id);
    handler_.closed(id);
}

/// shutdown() shows the end to the peer even if a send() still holds the connection, or a child its descriptor.
void ChannelServer::forget(ChannelId id) {
    const ConnectionPointer connection = find(id);
    channels_.with([&](auto& channels) { channels.erase(id); });
    settled(id);
    ::shutdown(connection->socket.get(), SHUT_RDWR);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
    if (connection->process) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->process.get(), nullptr);
}

}  // namespace shared_tensor::local
