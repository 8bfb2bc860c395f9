#include <shared_tensor/processes.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/log/crash.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"
#include "processes/description.hpp"
#include "processes/present_calls.hpp"
#include "processes/remote_function.hpp"
#include "processes/supervisor.hpp"

namespace shared_tensor {

class WorkerProcesses::Impl final : public processes::Supervisor {
public:
    using Supervisor::Supervisor;
};

WorkerProcesses::WorkerProcesses(ProcessOptions options) : impl_(shared_in_its_process(new Impl(std::move(options)))) {}
WorkerProcesses::~WorkerProcesses() { stop(std::chrono::milliseconds(0)); }

void WorkerProcesses::start() { impl_->start(); }
void WorkerProcesses::stop(std::chrono::milliseconds time) { impl_->stop(time); }
std::vector<WorkerProcessStatus> WorkerProcesses::status() const { return impl_->status(); }

namespace {

Registry remote(std::string_view description, const std::shared_ptr<processes::Supervisor>& supervisor) {
    Registry functions;
    for (auto& function : processes::make_remote_functions(description, supervisor))
        functions.add(std::move(function));
    return functions;
}

}  // namespace

Registry WorkerProcesses::share(const Registry& functions) const {
    return remote(processes::describe(functions.functions()), impl_);
}

Registry WorkerProcesses::share() const {
    const std::string description = impl_->description();
    if (description.empty()) throw std::logic_error("WorkerProcesses::share(): the processes were not started");
    return remote(description, impl_);
}

namespace {

/// The path of this worker's socket; empty in other processes. The variable is removed when it is first read: this
/// process's own children are no workers.
const std::string& worker_socket() {
    static const std::string socket = [] {
        const char* const path = std::getenv(processes::kSocketVariable);
        std::string copy = path != nullptr ? path : "";
        ::unsetenv(processes::kSocketVariable);
        if (path != nullptr) ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // until it serves: loading code may never end
        return copy;
    }();
    return socket;
}

/// Waits for up to `limit`; true when the other process has closed its end.
bool is_closed(const UniqueFd& control, std::chrono::milliseconds limit) {
    pollfd waits{control.get(), POLLIN, 0};
    if (::poll(&waits, 1, static_cast<int>(limit.count())) <= 0) return false;
    char byte = 0;
    const ssize_t got = ::read(control.get(), &byte, 1);
    return got == 0 || (got < 0 && errno != EINTR);
}

bool send_all(const UniqueFd& control, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = ::send(control.get(), text.data(), text.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

/// Waits until the other process wants this one to end. Ends the process if too many calls hang: their threads cannot
/// be ended in another way.
void serve_until_end_of(const UniqueFd& control) {
    while (!is_closed(control, std::chrono::seconds(1))) {
        const std::string why = processes::why_to_end(real_clock().now());
        if (why.empty()) continue;
        (void)send_all(control, std::string(processes::kEnds) + why);
        ::_exit(1);
    }
}

/// Limits that only the server in front enforces are so high here that they are not reached.
ServerOptions worker_options(ServerOptions options, const std::string& socket) {
    constexpr std::size_t kMany = 1'000'000;
    options.host.clear();
    options.operations = {};
    options.log = {};  // the server in front logs the calls
    options.dashboard = false;
    options.unix_socket = socket;
    options.local_socket = "auto";
    options.named_callers = true;
    options.tokens.clear();
    options.token_file.clear();
    options.tls = {};
    options.insecure = false;
    options.models.clear();
    options.model_folders.clear();
    auto& workers = options.calls.pool.workers;
    if (workers == 0) workers = std::max<std::size_t>(4, std::thread::hardware_concurrency());
    ++workers;  // tasks leave one free
    options.calls.cache = false;
    options.calls.pool.queue_limit = kMany;
    options.calls.max_streams = kMany;
    options.calls.tasks.max_tasks = kMany;
    options.calls.tasks.max_bytes = std::uint64_t{1} << 50;  // a result is kept for seconds
    options.requests.json.max_bytes = 2 * options.requests.json.max_bytes + (1 << 20);
    options.replies.max_json_bytes *= 2;
    options.http.max_body_bytes = std::size_t{1} << 50;
    options.http.max_client_requests = 0;
    options.http.idle_timeout = std::chrono::hours(24);
    options.sockets.max_sockets = 2 * options.sockets.max_sockets + 64;
    options.objects.max_handles *= 2;
    options.leases.max_leases *= 2;
    options.raise_descriptor_limit = true;
    return options;
}

}  // namespace

bool is_worker_process() { return !worker_socket().empty(); }

void serve_as_worker(Registry functions, ServerOptions options) {
    if (!is_worker_process())
        throw std::logic_error("serve_as_worker(): this process was not started by WorkerProcesses");
    // A terminal and service managers signal all processes of a program; the other process ends this one in time.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
        ::signal(signal, SIG_IGN);
    const UniqueFd control(processes::kControl);
    ::fcntl(control.get(), F_SETFD, FD_CLOEXEC);
    const std::string description = processes::describe(functions.functions());
    report_end_to(control.get());
    Registry wrapped;
    for (auto& function : functions.functions())
        wrapped.add(processes::make_worker_function(std::move(function)));
    for (const detail::Framework* framework : functions.frameworks())
        wrapped.use(framework);
    Server server(std::move(wrapped), worker_options(std::move(options), worker_socket()));
    server.start();
    ::prctl(PR_SET_PDEATHSIG, 0);
    if (send_all(control, description + '\n')) serve_until_end_of(control);
    report_end_to(-1);
    const bool all_ended = server.stop(std::chrono::milliseconds(0));
    // Only the last worker of a program that was killed finds the folder empty.
    ::rmdir(std::filesystem::path(worker_socket()).parent_path().c_str());
    // The results of calls that still run are not wanted, and a function may never return.
    if (!all_ended) ::_exit(0);
}

}  // namespace shared_tensor
