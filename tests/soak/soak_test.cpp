// Client processes make calls of all kinds. They are killed at random, worker processes crash, and the daemon is
// restarted. No result may be lost, doubled or wrong, and nothing may be left.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "soak/soak.hpp"
#include "support/daemon.hpp"
#include "support/process.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClients = 6;
constexpr std::uint64_t kMaxGrowth = 96 << 20;
constexpr std::size_t kMoreDescriptors = 16;  // idle connections to worker processes; ten minutes of leaks are more

std::chrono::seconds duration_of_soak() {
    const char* const seconds = std::getenv("SHARED_TENSOR_SOAK_SECONDS");
    return std::chrono::seconds(seconds == nullptr ? 20 : std::atoi(seconds));
}

/// A daemon that can be started again on its port.
class SoakDaemon {
public:
    SoakDaemon() { start(0); }

    void restart() {
        CHECK(stop() == 0);
        start(port_);
    }
    int stop() {
        child_->signal(SIGTERM);
        return child_->wait();
    }
    int port() const { return port_; }
    pid_t pid() const { return child_->pid(); }
    std::string log() const { return text_of_file(folder_.file("err")); }

private:
    void start(int port) {
        const std::string ready = folder_.file("ready");
        ::unlink(ready.c_str());
        child_ = std::make_unique<Child>(
            Words{kDaemon, "--port", std::to_string(port), "--ready-file", ready, "--load", SHARED_TENSOR_SOAK_OWN,
                  "--load", SHARED_TENSOR_SOAK_ISOLATED "?processes=2", "--session-idle", "5s"},
            Words{}, folder_.file("out"), folder_.file("err"));
        REQUIRE(eventually([&] { return ::access(ready.c_str(), R_OK) == 0 || child_->has_ended(); }));
        REQUIRE_FALSE(child_->has_ended());
        const std::string url = text_of_file(ready);
        port_ = std::stoi(url.substr(url.rfind(':') + 1));
    }

    TemporaryFolder folder_;
    std::unique_ptr<Child> child_;
    int port_ = 0;
};

/// Keeps client processes running, and kills one of them now and then.
class SoakClients {
public:
    SoakClients(int port, const std::string& folder) : port_(port), folder_(folder) {
        while (clients_.size() < kClients)
            clients_.push_back(start());
    }

    void kill_one() {
        auto& one = clients_[random_() % clients_.size()];
        one->signal(SIGKILL);
        one->wait();
        one = start();
        ++killed_;
    }
    /// A client ends by itself only if it saw a wrong result.
    void check() const {
        for (const auto& one : clients_) {
            INFO(text_of_file(folder_ + "/client"));
            REQUIRE_FALSE(one->has_ended());
        }
    }
    void end() {
        for (const auto& one : clients_) {
            one->signal(SIGKILL);
            one->wait();
        }
    }
    int killed() const { return killed_; }

private:
    std::unique_ptr<Child> start() {
        return std::make_unique<Child>(Words{"/proc/self/exe", "role: soak client"},
                                       Words{std::string(kSoakUrl) + "=http://127.0.0.1:" + std::to_string(port_),
                                             std::string(kSoakFolder) + '=' + folder_,
                                             std::string(kSoakSeed) + '=' + std::to_string(random_() % 1'000'000)},
                                       folder_ + "/client", "/dev/null");
    }

    const int port_;
    const std::string folder_;
    std::mt19937 random_{std::random_device{}()};
    std::vector<std::unique_ptr<Child>> clients_;
    int killed_ = 0;
};

std::map<std::string, int> counts_in(const std::string& path) {
    std::map<std::string, int> counts;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        ++counts[line];
    return counts;
}

/// What a daemon without clients holds.
struct Held {
    std::size_t descriptors;
    std::uint64_t bytes;

    explicit Held(const SoakDaemon& daemon)
        : descriptors(Descriptors(daemon.pid()).others), bytes(resident_bytes(daemon.pid())) {}
};

/// Waits until the daemon has noticed that all clients are gone.
void await_rest(const SoakDaemon& daemon) {
    CHECK(eventually([&] {
        const Json totals = call(daemon.port(), "server.info")["totals"];
        return totals["shared_memory"]["leases"] == 0 && totals["connections"] == 1 && totals["workers"]["busy"] == 0 &&
               totals["streams"]["running"] == 0 && totals["sessions"] == 0;
    }));
}

void check_results(const std::string& folder) {
    const auto ran = counts_in(calls_file(folder)), answered = counts_in(answers_file(folder));
    int lost = 0, doubled = 0;
    for (const auto& [key, count] : answered)
        lost += ran.contains(key) ? 0 : 1;
    for (const auto& [key, count] : ran)
        doubled += count > 1 ? 1 : 0;
    CHECK(lost == 0);
    CHECK(doubled == 0);
    CHECK(answered.size() > 10);
    WARN(ran.size() << " recorded calls have run, " << answered.size() << " were answered");
}

}  // namespace

TEST_CASE("nothing is lost, doubled, wrong or left, whoever is killed or restarted", "[soak]") {
    TemporaryFolder folder;
    SoakDaemon daemon;
    const auto begin = Clock::now(), end = begin + duration_of_soak();
    std::optional<Held> warm;
    int killed = 0;
    for (int part = 0; part < 3; ++part) {  // the daemon is restarted in the first part; the others are compared
        SoakClients clients(daemon.port(), folder.path());
        const auto end_of_part = begin + (part + 1) * (end - begin) / 3;
        const auto restart_at = begin + (end - begin) / 6;
        for (bool restarts = part == 0; Clock::now() < end_of_part;) {
            std::this_thread::sleep_for(500ms);
            clients.check();
            clients.kill_one();
            if (restarts && Clock::now() > restart_at) {
                daemon.restart();
                restarts = false;
            }
        }
        clients.check();
        clients.end();
        killed += clients.killed();
        await_rest(daemon);
        if (part == 1) warm.emplace(daemon);
    }
    const Held rest(daemon);
    CHECK(rest.descriptors <= warm->descriptors + kMoreDescriptors);
    CHECK(rest.bytes <= warm->bytes + kMaxGrowth);
    WARN(killed << " clients were killed; " << warm->bytes / 1'000'000 << " MB, then " << rest.bytes / 1'000'000
                << " MB; " << warm->descriptors << " descriptors, then " << rest.descriptors);
    check_results(folder.path());
    INFO(daemon.log());
    CHECK(daemon.stop() == 0);
}
