#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <shared_tensor/client.hpp>
#include <string>
#include <thread>
#include <vector>

#include "groups.hpp"
#include "http_connection.hpp"
#include "process.hpp"
#include "servers.hpp"

// Callers ask for ten times as much as the workers can do. Measures whether calls that the server rejects learn it at
// once, whether calls that it accepts are nearly as fast as without load, and whether the server stays healthy.

namespace bench {

namespace {

namespace st = shared_tensor;
using std::chrono::duration;
using std::chrono::milliseconds;

constexpr int kCallers = 40;
constexpr double kCapacity = kOverloadWorkers * 1000.0 / kOverloadTime.count();  // calls a second
constexpr double kOffered = 10 * kCapacity;

st::Client caller_of(const std::string& url) {
    st::ClientOptions options;
    options.url = url;
    options.retry = st::no_retry();
    options.connections = 1;
    return st::Client(options);
}

/// What callers saw.
struct Seen {
    Sample accepted, rejected;

    void call(const st::Client& client) {
        const auto start = Clock::now();
        try {
            client.call<int>("work");
            accepted.values.push_back(micros_since(start));
        } catch (const st::ServerBusy&) {
            rejected.values.push_back(micros_since(start));
        }
    }
    void append(const Seen& more) {
        accepted.append(more.accepted);
        rejected.append(more.rejected);
    }
};

/// All callers together call `use(seen, client)` kOffered times a second.
template <class Use>
Seen from_callers(const std::string& url, double seconds, Use use) {
    Seen all;
    std::mutex mutex;
    {
        std::vector<std::jthread> callers;
        for (int i = 0; i < kCallers; ++i) {
            callers.emplace_back([&, i] {
                const st::Client client = caller_of(url);
                Seen seen;
                const duration<double> interval(kCallers / kOffered);
                // At other times than the other callers.
                const auto begin = Clock::now() + std::chrono::duration_cast<Clock::duration>(i * interval / kCallers);
                for (int call = 0; micros_since(begin) < seconds * 1e6; ++call) {
                    std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(call * interval));
                    use(seen, client);
                }
                const std::lock_guard lock(mutex);
                all.append(seen);
            });
        }
    }
    return all;
}

std::string get(const Endpoint& server, const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: " + server.host() + "\r\n\r\n";
}

/// Asks for a file again and again.
Sample watch(const Endpoint& server, const std::string& path, milliseconds every, const std::atomic<bool>& ends) {
    HttpConnection connection(server.connect());
    Sample latencies;
    while (!ends) {
        const auto start = Clock::now();
        connection.round_trip(get(server, path));
        latencies.values.push_back(micros_since(start));
        std::this_thread::sleep_for(every);
    }
    return latencies;
}

double resident_mib(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/statm");
    double all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Milliseconds until a call is as fast as without load.
double until_normal(const st::Client& client, double usual) {
    const auto start = Clock::now();
    for (;;) {
        Seen one;
        one.call(client);
        if (!one.accepted.values.empty() && one.accepted.values.front() <= 1.5 * usual)
            return micros_since(start) / 1e3;
    }
}

}  // namespace

void overload(Report& report, const Settings& settings) {
    report.group("calls at ten times what the workers can do");
    const ServerProcess server({"overload"});
    const st::Client client = caller_of(server.address());
    const Sample pings = time_calls(settings.seconds, [&] { client.ping(); });
    const Seen sparse = from_callers(server.address(), settings.seconds, [](Seen& of_caller, const st::Client& caller) {
        const auto start = Clock::now();
        caller.ping();
        of_caller.accepted.values.push_back(micros_since(start));
    });
    Seen alone;
    for (int i = 0; i < 100; ++i)
        alone.call(client);
    const double before = resident_mib(server.pid());
    std::atomic<bool> ends{false};
    Sample health, metrics;
    std::jthread watches_health([&] { health = watch({server.port()}, "/healthz", milliseconds(50), ends); });
    // More often than any Prometheus does. A page takes as long as ten calls: every 50 ms, it would be what p99 shows.
    std::jthread watches_metrics([&] { metrics = watch({server.port()}, "/metrics", milliseconds(1000), ends); });
    const Seen seen = from_callers(server.address(), 10 * settings.seconds,
                                   [](Seen& of_caller, const st::Client& caller) { of_caller.call(caller); });
    const double normal = until_normal(client, alone.accepted.median());
    ends = true;
    watches_health.join();
    watches_metrics.join();
    report.latency_row("ping, without load", pings);
    report.latency_row("ping, without load, from as many callers", sparse.accepted);
    report.latency_row("call, without load", alone.accepted);
    report.latency_row("accepted call", seen.accepted);
    report.latency_row("rejected call", seen.rejected);
    report.latency_row("GET /healthz", health);
    report.latency_row("GET /metrics", metrics);
    report.row("accepted and rejected calls a second",
               {{"accepted", static_cast<double>(seen.accepted.values.size()) / (10 * settings.seconds)},
                {"rejected", static_cast<double>(seen.rejected.values.size()) / (10 * settings.seconds)}});
    report.target(
        {"rejected call, p99 / ping", seen.rejected.quantile(0.99) / pings.median(), Target::Bound::at_most, 10});
    report.target({"accepted call, p99 / p99 without load",
                   seen.accepted.quantile(0.99) / alone.accepted.quantile(0.99), Target::Bound::at_most, 2});
    report.target({"until a call is as fast as before, in ms", normal, Target::Bound::at_most, 2000});
    report.target({"growth of the server, in MiB", resident_mib(server.pid()) - before, Target::Bound::at_most, 64});
}

}  // namespace bench
