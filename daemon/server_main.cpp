// shared-tensor-server: see --help.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/processes.hpp>
#include <shared_tensor/server.hpp>

#include "base/log/log.hpp"
#include "base/log/standard_error.hpp"
#include "base/memory/heap.hpp"
#include "base/memory/memory_faults.hpp"
#include "base/system/unique_fd.hpp"
#include "ending.hpp"
#include "program.hpp"

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

/// Prints the reason why the daemon ends, after the earlier lines of the log.
void say(const std::string& text) {
    log::flush(std::chrono::seconds(1));
    write_to_standard_error("shared-tensor-server: " + text + '\n', IfFull::drop);
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

Registry collect(const daemon::DaemonOptions& options) {
    Registry registry;
    for (const std::string& path : options.plugins)
        daemon::load_plugin(path, registry);
    return registry;
}

void prepare(const daemon::DaemonOptions& options) {
    never_block_on_standard_error();
    log::set_level(log::parse_level(options.log_level));
    daemon::Ending::watch_crashes();
    daemon::Ending::watch_exit();
    keep_memory_reserve();
}

std::size_t default_threads() { return std::max<std::size_t>(4, std::thread::hardware_concurrency()); }

/// The worker processes of this program, which get its command line; none without --processes. `threads` of the server:
/// one for each thread of the processes.
std::optional<WorkerProcesses> worker_processes(const daemon::DaemonOptions& options, int argc, char** argv,
                                                std::size_t& threads) {
    if (options.processes == 0) return std::nullopt;
    if (threads == 0) threads = default_threads();
    threads *= options.processes;
    std::vector<std::string> command{"/proc/self/exe"};
    command.insert(command.end(), argv + 1, argv + argc);
    return std::optional<WorkerProcesses>(
        std::in_place, ProcessOptions{.processes = options.processes, .command = std::move(command)});
}

int serve(daemon::DaemonOptions options, daemon::Ending& ending, int argc, char** argv) {
    prepare(options);
    Registry functions = collect(options);
    auto workers = worker_processes(options, argc, argv, options.server.calls.pool.workers);
    if (workers) {
        functions = workers->share(functions);
        options.server.worker_processes = [&workers] { return workers->status(); };
    }
    Server server(std::move(functions), options.server);
    if (workers) workers->start();
    server.start();
    daemon::Ending::watch_exit();
    ending.serves(options.server.drain_time);
    if (!options.ready_file.empty()) {
        daemon::Ending::owns_ready_file(options.ready_file);
        write_ready_file(options.ready_file, server.url());
    }
    log::info("listening on ", server.url(), " with ", server.functions(), " functions");

    ending.wait();
    log::info("stopping: calls in flight have ", options.server.drain_time.count(), " ms");
    const bool clean = server.stop(options.server.drain_time);
    if (workers) workers->stop(std::chrono::seconds(1));
    if (clean) log::info("stopped");
    if (!clean) log::warn("stopped; something did not end in time: a call, a model that is being loaded or a transfer");
    daemon::leave(0);
}

/// A worker process: the server's process started it with its own command line.
int work(int argc, char** argv) {
    handle_memory_faults();
    auto parsed = daemon::parse_options(argc, argv);
    prepare(parsed.options);
    ServerOptions& options = parsed.options.server;
    const std::size_t threads = options.calls.pool.workers != 0 ? options.calls.pool.workers : default_threads();
    if (options.torch_threads == 0)
        options.torch_threads = std::max<std::size_t>(1, default_threads() / (threads * parsed.options.processes));
    serve_as_worker(collect(parsed.options), options);
    daemon::leave(0);
}

}  // namespace

int main(int argc, char** argv) {
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
        return serve(parsed.options, ending, argc, argv);
    } catch (const std::exception& error) {
        say(error.what());
        daemon::leave(1);
    }
}
