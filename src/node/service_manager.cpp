#include <shared_tensor/service_manager.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include <shared_tensor/client.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/system/descriptor_store.hpp"

namespace shared_tensor {

namespace {

using std::chrono::microseconds;

constexpr int kFirstDescriptor = 3;

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

ServiceManager::ServiceManager()
    : names_(take("LISTEN_FDNAMES")),
      notify_socket_(take("NOTIFY_SOCKET")),
      store_size_(static_cast<std::size_t>(take_number<std::int64_t>("FDSTORE"))) {
    const auto pid = take_number<pid_t>("LISTEN_PID");
    const auto descriptors = take_number<int>("LISTEN_FDS");
    if (pid == ::getpid()) descriptors_ = descriptors;  // a parent's descriptors would be of no use
    const auto watched = take_number<pid_t>("WATCHDOG_PID");
    const auto limit = take_number<std::int64_t>("WATCHDOG_USEC");
    if (limit > 0 && is_for_this_process(watched)) watchdog_ = microseconds(limit);
}

void ServiceManager::give_descriptors_to(ServerOptions& options) const {
    options.state.socket = notify_socket_;
    options.state.max_descriptors = store_size_;
    std::string_view names = names_;
    for (int fd = kFirstDescriptor; fd < kFirstDescriptor + descriptors_; ++fd) {
        const std::size_t end = std::min(names.find(':'), names.size());
        const std::string_view name = names.substr(0, end);
        if (name.starts_with(DescriptorStore::kPrefix)) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            options.state.descriptors.emplace(name, fd);
        } else if (name == "operations") {
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

void ServiceManager::notify(std::string_view message) const try {
    if (!notify_socket_.empty()) send_to_manager(connect_to_manager(notify_socket_), std::string(message));
} catch (const std::exception& error) {
    log::debug("the service manager gets no messages: ", error.what());
}

}  // namespace shared_tensor
