#include "net/server/listener.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "net/message/text.hpp"
#include "net/stream/stream.hpp"

namespace shared_tensor::net {

namespace {

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
        fail(error == EAI_SYSTEM ? errno : EADDRNOTAVAIL,
             "cannot listen on " + host_and_port(host, port) + " (" + ::gai_strerror(error) + ")");
    }
    return {found, &::freeaddrinfo};
}

/// IPv4 first: most clients write 127.0.0.1 for "localhost".
const addrinfo& choose(const addrinfo& first) {
    for (const addrinfo* one = &first; one != nullptr; one = one->ai_next) {
        if (one->ai_family == AF_INET) return *one;
    }
    return first;
}

/// Accepted connections inherit these.
void set_tcp_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

int option_of(int fd, int option) {
    int value = 0;
    socklen_t size = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

/// The peer of a Unix socket: uid and pid of the process that called connect(), from the kernel.
Peer unix_peer(int fd) {
    Peer peer;
    peer.unix_socket = true;
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
        peer.uid = credentials.uid;
        peer.pid = credentials.pid;
    }
    return peer;
}

/// Address and port of a TCP peer, without its uid.
Peer tcp_peer(const sockaddr_storage& address) {
    Peer peer;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
        peer.port = ntohs(v4.sin_port);
    } else if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
        peer.port = ntohs(v6.sin6_port);
    }
    peer.ip = text.data();
    return peer;
}

constexpr std::uint32_t kEstablished = 1;  // the kernel's TCP_ESTABLISHED; <netinet/tcp.h> has it as an enum
constexpr std::uint32_t kFinWait2 = 5;
constexpr std::uint32_t kFinWait1 = 4;

struct Query {
    nlmsghdr header;
    inet_diag_req_v2 request;
};

void set_end(const sockaddr_storage& address, __be32* ip, __be16& port) {
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        std::memcpy(ip, &v4.sin_addr, sizeof v4.sin_addr);
        port = v4.sin_port;
    } else {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        std::memcpy(ip, &v6.sin6_addr, sizeof v6.sin6_addr);
        port = v6.sin6_port;
    }
}

/// Asks for the client's socket: its own end is `peer`, its other end is `local`.
Query make_query(const sockaddr_storage& peer, const sockaddr_storage& local) {
    Query query{};
    query.header.nlmsg_len = sizeof query;
    query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    query.header.nlmsg_flags = NLM_F_REQUEST;
    query.request.sdiag_family = static_cast<__u8>(peer.ss_family);
    query.request.sdiag_protocol = IPPROTO_TCP;
    query.request.idiag_states = ~0U;
    query.request.id.idiag_cookie[0] = query.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    set_end(peer, query.request.id.idiag_src, query.request.id.idiag_sport);
    set_end(local, query.request.id.idiag_dst, query.request.id.idiag_dport);
    return query;
}

/// Nullopt for a socket that its process has closed, and for one in TIME_WAIT: the kernel reports them with uid 0.
std::optional<std::uint32_t> owner_of(const inet_diag_msg& found, const Query& asked) {
    const bool alive =
        found.idiag_state == kEstablished || found.idiag_state == kFinWait1 || found.idiag_state == kFinWait2;
    if (!alive || found.idiag_inode == 0) return std::nullopt;
    if (found.id.idiag_sport != asked.request.id.idiag_sport || found.id.idiag_dport != asked.request.id.idiag_dport) {
        return std::nullopt;
    }
    return found.idiag_uid;
}

UniqueFd open_netlink() { return UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)); }

/// Does not wait, since the kernel answers within sendto(). Skips answers to earlier questions.
PeerUsers::User read_answer(int netlink, const Query& query) {
    while (true) {
        alignas(nlmsghdr) std::array<char, 4096> buffer{};
        const ssize_t got = ::recv(netlink, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0) return {std::nullopt, errno};
        if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) return {std::nullopt, EPROTO};
        nlmsghdr header{};
        std::memcpy(&header, buffer.data(), sizeof header);
        if (header.nlmsg_seq != query.header.nlmsg_seq) continue;
        const char* const content = buffer.data() + NLMSG_HDRLEN;
        if (header.nlmsg_type == NLMSG_ERROR && got >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr)))) {
            nlmsgerr rejection{};
            std::memcpy(&rejection, content, sizeof rejection);
            return {std::nullopt, rejection.error == -ENOENT ? 0 : -rejection.error};
        }
        if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))))
            return {std::nullopt, EPROTO};
        inet_diag_msg found{};
        std::memcpy(&found, content, sizeof found);
        return {owner_of(found, query), 0};
    }
}

PeerUsers::User ask_kernel(int netlink, const Query& query) {
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    const auto* const to = reinterpret_cast<const sockaddr*>(&kernel);
    if (::sendto(netlink, &query, sizeof query, 0, to, sizeof kernel) < 0) return {std::nullopt, errno};
    return read_answer(netlink, query);
}

}  // namespace

ListeningAddress ListeningAddress::of(int fd) {
    const auto reject = [fd](const std::string& why) -> std::invalid_argument {
        return std::invalid_argument("the inherited descriptor " + std::to_string(fd) + ' ' + why);
    };
    if (option_of(fd, SO_TYPE) != SOCK_STREAM) throw reject("is no stream socket: give a listening TCP or Unix socket");
    if (option_of(fd, SO_ACCEPTCONN) != 1)
        throw reject("is a socket that does not listen; in a socket unit of systemd, use Accept=no");
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    SHARED_TENSOR_CHECK_ERRNO(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    if (address.ss_family == AF_UNIX) {
        std::string path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
        if (path.empty()) throw reject("is a Unix socket without a path: give its socket a path in the file system");
        return {.unix_socket = std::move(path)};
    }
    const Peer own = tcp_peer(address);
    if (own.ip.empty()) throw reject("is neither a TCP socket nor a Unix socket");
    return {.host = own.ip, .port = own.port};
}

Listener Listener::tcp(const std::string& host, int port) {
    const std::string what = "cannot listen on " + host_and_port(host, port);
    const AddressList addresses = resolve(host, port);
    const addrinfo& address = choose(*addresses);
    Listener made;
    made.fd_ = UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::socket(address.ai_family, kSocketFlags, 0), what));
    // A port whose old connections are in TIME_WAIT can be used again; a port with another listener cannot.
    set_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    set_tcp_options(made.fd());
    if (host == "::")
        set_option(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);  // all addresses, whatever the system's default
    SHARED_TENSOR_CHECK_ERRNO(::bind(made.fd(), address.ai_addr, address.ai_addrlen), what);
    SHARED_TENSOR_CHECK_ERRNO(::listen(made.fd(), kBacklog), what);
    made.port_ = ListeningAddress::of(made.fd()).port;
    return made;
}

Listener Listener::unix_socket(const std::string& path) {
    Listener made;
    made.unix_.emplace(path);
    made.is_unix_ = true;
    return made;
}

Listener Listener::inherited(int fd) {
    const ListeningAddress address = ListeningAddress::of(fd);
    Listener made;
    made.fd_ = UniqueFd(fd);
    made.port_ = address.port;
    made.is_unix_ = !address.unix_socket.empty();
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
    if (!made.is_unix_) set_tcp_options(fd);
    return made;
}

Accepted Listener::accept() const {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Accepted accepted;
    accepted.fd =
        ProcessFd::opened([&] { return ::accept4(fd(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC); });
    if (!accepted.fd) return accepted;
    accepted.loopback = !is_unix_ && is_loopback(address);
    accepted.peer = is_unix_ ? unix_peer(accepted.fd.get()) : tcp_peer(address);
    if (accepted.loopback) unpace_loopback(accepted.fd.get());
    return accepted;
}

PeerUsers::PeerUsers() {
    netlink_.with([](Socket& socket) { socket.fd = open_netlink(); });
}

PeerUsers::User PeerUsers::of(int fd) {
    sockaddr_storage peer{}, local{};
    socklen_t peer_size = sizeof peer, local_size = sizeof local;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return {};
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0) return {};
    if (!is_loopback(peer) || !is_loopback(local)) return {};
    Query query = make_query(peer, local);
    return netlink_.with([&](Socket& socket) -> User {
        if (!socket.fd) socket.fd = open_netlink();
        if (!socket.fd) return {std::nullopt, errno};
        query.header.nlmsg_seq = ++socket.questions;
        return ask_kernel(socket.fd.get(), query);
    });
}

}  // namespace shared_tensor::net
