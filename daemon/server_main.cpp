// shared-tensor-server: see --help.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/processes.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/service_manager.hpp>

#include "base/log/log.hpp"
#include "base/log/log_text.hpp"
#include "base/log/standard_error.hpp"
#include "base/memory/heap.hpp"
#include "base/memory/memory_faults.hpp"
#include "base/system/unique_fd.hpp"
#include "base/system/unix_listener.hpp"
#include "ending.hpp"
#include "program.hpp"
#include "runtime/models/model.hpp"

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): the program of this library

/// Makes writes to standard error non-blocking, so that no output of a library or plugin can block. Opens the pipe or
/// terminal again, because O_NONBLOCK on the inherited open file would affect other processes.
void never_block_on_standard_error() {
    struct stat status {};
    if (::fstat(STDERR_FILENO, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return;
    const UniqueFd own(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own) ::dup2(own.get(), STDERR_FILENO);
}

/// Prints the reason why the daemon ends, after the earlier lines of the log, whatever the log's level is.
void say(const std::string& text) {
    log::flush(std::chrono::seconds(1));
    std::string line = "shared-tensor-server: " + text + '\n';
    if (log::format() == log::Format::json) {
        const std::string body = log::body_of(log::Format::json, {log::Level::error, text}, nullptr).text;
        line = log::whole_line(log::Format::json, log::Level::error, body, std::chrono::system_clock::now());
    }
    write_to_standard_error(line, IfFull::drop);
}

void write_ready_file(const std::string& path, const std::string& url) {
    const std::string temporary = path + ".tmp";
    std::ofstream file(temporary);
    file << url << '\n';
    file.close();
    if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
        throw std::runtime_error("cannot write the ready file " + path);
    }
}

Registry load(const daemon::PluginGroup& group) {
    Registry registry;
    for (const std::string& path : group.paths)
        daemon::load_plugin(path, registry);
    return registry;
}

void prepare(const daemon::DaemonOptions& options) {
    never_block_on_standard_error();
    log::set_level(log::parse_level(options.log_level));
    log::set_format(log::parse_format(options.log_format));
    if (options.crash_report) daemon::Ending::watch_crashes();
    daemon::Ending::watch_exit();
    keep_memory_reserve();
}

std::size_t default_threads() { return std::max<std::size_t>(4, std::thread::hardware_concurrency()); }

/// The groups of worker processes. A process that is started again gets the same options.
class Workers {
public:
    Workers(const std::vector<daemon::PluginGroup>& groups, const daemon::DaemonOptions& options) {
        for (std::size_t i = 1; i < groups.size(); ++i) {
            std::vector<std::string> command{
                "/proc/self/exe", std::string(daemon::kWorkerGroup) + daemon::write_worker_start(groups[i], options)};
            all_.push_back(std::make_unique<WorkerProcesses>(ProcessOptions{
                .name = groups[i].name, .processes = groups[i].processes, .command = std::move(command)}));
            processes_ += groups[i].processes;
        }
    }

    std::size_t processes() const { return processes_; }
    /// Starts all groups at the same time, and adds their functions.
    void start(Registry& registry) {
        std::vector<std::future<void>> started;
        for (const auto& one : all_)
            started.push_back(std::async(std::launch::async, [&] { one->start(); }));
        for (auto& one : started)
            one.get();
        for (const auto& one : all_) {
            const Registry shared = one->share();
            for (auto& function : shared.functions())
                registry.add(std::move(function));
        }
    }
    void stop() {
        for (const auto& one : all_)
            one->stop(std::chrono::seconds(1));
    }
    std::vector<WorkerProcessStatus> status() const {
        std::vector<WorkerProcessStatus> all;
        for (const auto& one : all_)
            std::ranges::move(one->status(), std::back_inserter(all));
        return all;
    }

private:
    std::vector<std::unique_ptr<WorkerProcesses>> all_;
    std::size_t processes_ = 0;
};

int serve(daemon::DaemonOptions options, daemon::Ending& ending, int argc, char** argv) {
    const std::vector<daemon::PluginGroup> groups = daemon::plugin_groups(options);
    daemon::DaemonOptions given = options;
    ServiceManager manager;
    prepare(options);
    if (!options.ready_file.empty()) ::unlink(options.ready_file.c_str());  // of a server that was killed
    manager.give_descriptors_to(options.server);
    Registry functions = load(groups.front());
    Workers workers(groups, given);
    if (std::size_t& threads = options.server.calls.pool.workers; workers.processes() > 0) {
        // A thread of the server waits for each thread of a worker process.
        if (threads == 0) threads = default_threads();
        threads *= workers.processes() + (groups.front().paths.empty() ? 0 : 1);
        options.server.worker_processes = [&workers] { return workers.status(); };
    }
    workers.start(functions);
    Server server(std::move(functions), options.server);
    server.start();
    daemon::Ending::watch_exit();
    ending.serves(options.server.drain_time);
    if (!options.ready_file.empty()) {
        daemon::Ending::owns_ready_file(options.ready_file);
        write_ready_file(options.ready_file, server.url());
    }
    log::info("listening on ", server.url(), " with ", server.functions(), " functions");

    manager.ready(server.url());

    ending.wait([&] { daemon::reload_options(given, argc, argv); });
    manager.stopping();
    log::info("stopping: calls in flight have ", options.server.drain_time.count(), " ms");
    const bool clean = server.stop(options.server.drain_time);
    workers.stop();
    if (clean) log::info("stopped");
    if (!clean) log::warn("stopped; something did not end in time: a call, a model that is being loaded or a transfer");
    daemon::leave(0);
}

/// Checks what a start would check, but loads no plugin and no model, and listens nowhere. Throws what the start would.
void check(const daemon::DaemonOptions& options) {
    (void)daemon::plugin_groups(options);
    ServerOptions server = options.server;
    for (const std::string& model : server.models)
        (void)models::parse_model_argument(model);
    server.models.clear();
    server.log.access_log.clear();
    if (!server.unix_socket.empty()) (void)unix_address(server.unix_socket);
    const Server checked(Registry(), std::move(server));
}

/// A worker process, which the server's process started.
int work(int argc, char** argv) {
    handle_memory_faults();
    const std::string_view last = argv[argc - 1];
    if (!last.starts_with(daemon::kWorkerGroup)) throw std::runtime_error("a worker process without its group");
    auto start = daemon::read_worker_start(last.substr(daemon::kWorkerGroup.size()));
    const daemon::PluginGroup& group = start.group;
    prepare(start.options);
    daemon::limit_resources(group);
    ServerOptions& options = start.options.server;
    const std::size_t threads = options.calls.pool.workers != 0 ? options.calls.pool.workers : default_threads();
    if (options.torch_threads == 0)
        options.torch_threads = std::max<std::size_t>(1, default_threads() / (threads * group.processes));
    try {
        serve_as_worker(load(group), options);
    } catch (const std::exception& error) {
        if (group.memory == 0) throw;
        throw std::runtime_error(std::string(error.what()) + "; the limit memory=" + std::to_string(group.memory) +
                                 " of this plugin's processes may be too low");
    }
    daemon::leave(0);
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_descriptors();
    try {
        if (is_worker_process()) return work(argc, argv);
        daemon::Ending ending;
        handle_memory_faults();
        const bool doctor = argc > 1 && std::string_view(argv[1]) == "doctor";
        if (doctor) std::rotate(argv + 1, argv + 2, argv + argc);  // doctor takes the same options
        const auto parsed = daemon::parse_options(doctor ? argc - 1 : argc, argv);
        if (doctor && !parsed.print) return daemon::doctor(parsed.options);
        if (parsed.print) {
            std::cout << *parsed.print << '\n';
            return 0;
        }
        if (parsed.checks) {
            check(parsed.options);
            std::cout << "the configuration is good\n";
            return 0;
        }
        return serve(parsed.options, ending, argc, argv);
    } catch (const std::exception& error) {
        say(error.what());
        daemon::leave(1);
    }
}
