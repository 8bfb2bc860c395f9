// shared-tensor-server: see --help.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <string_view>
#include <thread>

#include <shared_tensor/server.hpp>

#include "doctor.hpp"
#include "options.hpp"
#include "plugins.hpp"
#include "util/log.hpp"

/// There in a build for coverage only.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): gcc's name
extern "C" void __gcov_dump() __attribute__((weak));

namespace {

using namespace shared_tensor;  // NOLINT(google-build-using-namespace): the program of this library

/// Blocked before any thread starts, so that only wait_for_signal() gets them.
sigset_t block_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP})
        ::sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    (void)std::signal(SIGPIPE, SIG_IGN);
    return set;
}

int wait_for_signal(const sigset_t& set) {
    int signal = 0;
    do {
        if (::sigwait(&set, &signal) != 0) return SIGTERM;
    } while (signal == SIGHUP);  // a closed terminal does not end a daemon
    return signal;
}

/// Nothing of the process may be destroyed while a function that ignores its cancellation still runs.
[[noreturn]] void leave(int code) {
    (void)std::fflush(nullptr);
    if (__gcov_dump != nullptr) __gcov_dump();
    ::_exit(code);
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

int serve(const daemon::DaemonOptions& options, const sigset_t& signals) {
    log::set_level(log::parse_level(options.log_level));
    Server server(collect(options), options.server);
    server.start();
    if (!options.ready_file.empty()) write_ready_file(options.ready_file, server.url());
    log::info("listening on ", server.url(), " with ", server.functions(), " functions");

    wait_for_signal(signals);
    log::info("stopping: calls in flight have ", options.server.drain_time.count(), " ms");
    std::thread([signals] {
        wait_for_signal(signals);
        log::warn("second signal: stopping at once");
        leave(1);
    }).detach();  // ends with the process
    const bool clean = server.stop(options.server.drain_time);
    log::info(clean ? "stopped" : "stopped; some calls did not end in time");
    if (!options.ready_file.empty()) ::unlink(options.ready_file.c_str());
    leave(0);
}

}  // namespace

int main(int argc, char** argv) {
    const sigset_t signals = block_signals();
    try {
        const bool doctor = argc > 1 && std::string_view(argv[1]) == "doctor";
        if (doctor) std::rotate(argv + 1, argv + 2, argv + argc);  // the options are as for serving
        const auto parsed = daemon::parse_options(doctor ? argc - 1 : argc, argv);
        if (doctor && !parsed.print) return daemon::doctor(parsed.options);
        if (parsed.print) {
            std::cout << *parsed.print << '\n';
            return 0;
        }
        return serve(parsed.options, signals);
    } catch (const std::exception& error) {
        std::cerr << "shared-tensor-server: " << error.what() << '\n';
        leave(1);
    }
}
