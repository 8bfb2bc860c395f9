#include "service_manager.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <shared_tensor/client.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::daemon {

namespace {

using std::chrono::microseconds;

constexpr int kFirstSocket = 3;

/// The value of the variable, which is removed from the environment.
std::string take(const char* name) {
    const char* const value = std::getenv(name);
    std::string taken = value != nullptr ? value : "";
    ::unsetenv(name);
    return taken;
}

template <class T>
T take_number(const char* name) {
    const std::string text = take(name);
    T number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0) {
        if (text.empty()) return 0;
        throw std::invalid_argument(std::string(name) + " is \"" + text +
                                    "\", not a number: a service manager sets it; remove it to start by hand");
    }
    return number;
}

/// Without a PID the value is for every process.
bool is_for_this_process(pid_t pid) { return pid == 0 || pid == ::getpid(); }

/// Whether the server answers a client. An error of the server is an answer, too: the watchdog's client may have no
/// token, and no authority for the server's certificate.
bool answers(const std::string& url, std::chrono::milliseconds within) {
    ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    options.connect_timeout = options.answer_limit = within;
    options.retry = no_retry();
    try {
        (void)Client(std::move(options)).ping();
    } catch (const RpcError& error) {
        const bool answered =
            dynamic_cast<const TransportFailure*>(&error) == nullptr && !error.is(ErrorCode::deadline_exceeded);
        if (!answered) log::warn("the watchdog got no answer from the server: ", error.what());
        return answered;
    }
    return true;
}

}  // namespace

ServiceManager::ServiceManager() : socket_names_(take("LISTEN_FDNAMES")), notify_socket_(take("NOTIFY_SOCKET")) {
    const auto pid = take_number<pid_t>("LISTEN_PID");
    const auto sockets = take_number<int>("LISTEN_FDS");
    if (pid == ::getpid()) sockets_ = sockets;  // a parent's sockets would be of no use
    const auto watched = take_number<pid_t>("WATCHDOG_PID");
    const auto limit = take_number<std::int64_t>("WATCHDOG_USEC");
    if (limit > 0 && is_for_this_process(watched)) watchdog_ = microseconds(limit);
}

void ServiceManager::give_sockets_to(ServerOptions& options) const {
    std::string_view names = socket_names_;
    for (int fd = kFirstSocket; fd < kFirstSocket + sockets_; ++fd) {
        const std::size_t end = std::min(names.find(':'), names.size());
        if (names.substr(0, end) == "operations") {
            options.operations.socket = fd;
        } else {
            options.inherited_sockets.push_back(fd);
        }
        names.remove_prefix(std::min(end + 1, names.size()));
    }
    if (!options.inherited_sockets.empty())
        log::info("listening on the sockets of the service manager alone, in place of host, port and unix-socket");
}

void ServiceManager::ready(const std::string& url) {
    notify("READY=1\nSTATUS=serves on " + url);
    if (!watchdog_ || notify_socket_.empty()) return;
    // A late answer comes within a third of the limit, and the next question is asked within another third.
    const auto period = std::chrono::ceil<std::chrono::milliseconds>(*watchdog_ / 3);
    watcher_ = maintenance("st-watchdog", period, [this, url, period] {
        if (answers(url, period)) notify("WATCHDOG=1");
    });
}

void ServiceManager::stopping() {
    watcher_.request_stop();
    notify("STOPPING=1\nSTATUS=waits for the calls in flight");
}

void ServiceManager::notify(std::string_view message) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (notify_socket_.empty() || notify_socket_.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, notify_socket_.data(), notify_socket_.size());
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // a name that is in no file system
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket_.size());
    ::sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
             size);
}

}  // namespace shared_tensor::daemon
