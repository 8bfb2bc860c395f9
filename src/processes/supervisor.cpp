#include "processes/supervisor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::processes {

using std::chrono::milliseconds;

const char* const kLost = "; the object that it had is lost";

namespace {

constexpr std::size_t kMaxClients = 256;      // principals with a client of one process
constexpr std::size_t kConnections = 65'536;  // the server's own limits hold
constexpr milliseconds kSlice{100};           // of a wait that while_starting may end
constexpr milliseconds kLongestWait{1'000};   // in case the kernel cannot report the end of a process
constexpr std::size_t kFailedStarts = 3;      // of each process; then calls do not wait for the next start

std::string make_folder() {
    const std::filesystem::path parent = std::filesystem::temp_directory_path();
    std::string name = (parent / "shared_tensor-workers-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), "a folder for sockets: " + name);
    return name;
}

}  // namespace

Client Run::client(const std::string& principal) const {
    const auto known = state_.with([&](State& state) -> std::optional<Client> {
        const auto found = state.clients.find(principal);
        return found == state.clients.end() ? std::nullopt : std::optional(found->second);
    });
    if (known) return *known;
    ClientOptions options;
    options.url = url_;
    options.token = net::percent_encode_path(principal);
    options.connections = kConnections;
    options.retry = no_retry();
    options.answer_limit = std::chrono::hours(24);
    Client made(std::move(options));
    std::map<std::string, Client> dropped;  // closed outside the lock
    return state_.with([&](State& state) {
        if (state.clients.size() >= kMaxClients) dropped.swap(state.clients);
        return state.clients.emplace(principal, std::move(made)).first->second;
    });
}

void Run::set_ended(std::string how) {
    std::map<std::string, Client> clients;  // closed outside the lock
    state_.with([&](State& state) {
        state.end = std::move(how);
        clients.swap(state.clients);
    });
    state_.notify_all();
}

std::string Run::end(milliseconds limit) const {
    auto state = state_.lock();
    (void)state.wait_until(real_clock().now() + limit, [](const State& now) { return !now.end.empty(); });
    return state->end;
}

Supervisor::Supervisor(ProcessOptions options) : options_(std::move(options)) {
    if (options_.processes == 0) throw std::invalid_argument("worker processes: at least 1, not 0");
    if (options_.command.empty() || options_.command.front().empty())
        throw std::invalid_argument("worker processes: ProcessOptions::command is empty");
    state_.with([&](State& state) {
        state.slots.resize(options_.processes);
        for (Slot& slot : state.slots)
            slot.status.name = options_.name;
    });
}

Supervisor::~Supervisor() { stop(milliseconds(0)); }

void Supervisor::start() {
    if (thread_.joinable()) throw std::logic_error("the worker processes were started already");
    folder_ = make_folder();
    environment_ = environment();
    wake_.reset(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    const SteadyTime deadline = later(real_clock().now(), options_.start_timeout);
    try {
        while (!wait_for_start(std::min(deadline, real_clock().now() + kSlice))) {
            if (real_clock().now() >= deadline)
                throw std::runtime_error("the worker processes were not ready in time: raise start_timeout");
            if (options_.while_starting) options_.while_starting();
        }
    } catch (...) {
        stop(milliseconds(0));
        throw;
    }
}

bool Supervisor::wait_for_start(SteadyTime until) {
    const auto is_ready = [](const Slot& slot) { return slot.status.ready; };
    auto state = state_.lock();
    const bool known = state.wait_until(until, [&](const State& now) {
        return !now.failure.empty() || std::all_of(now.slots.begin(), now.slots.end(), is_ready);
    });
    if (known && !state->failure.empty()) throw std::runtime_error(state->failure);
    return known;
}

void Supervisor::stop(milliseconds time) {
    if (!process_.is_here()) return;
    state_.with([](State& state) { state.stopped = true; });
    state_.notify_all();
    if (!thread_.joinable()) return;
    time_to_end_ = time;
    thread_.request_stop();
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

std::vector<WorkerProcessStatus> Supervisor::status() const {
    return state_.with([](const State& state) {
        std::vector<WorkerProcessStatus> all;
        for (const Slot& slot : state.slots)
            all.push_back(slot.status);
        return all;
    });
}

std::string Supervisor::description() const {
    return state_.with([](const State& state) { return state.description; });
}

Supervisor::Chosen Supervisor::choose(State& state, const RunPointer& wanted, RunPointer& run) {
    if (state.stopped) return Chosen::stopped;
    Slot* best = nullptr;
    bool lost = true, cannot_start = true;
    for (std::size_t i = 0; i < state.slots.size(); ++i) {
        Slot& slot = state.slots[(state.next + i) % state.slots.size()];
        cannot_start &= slot.failed_starts >= kFailedStarts;
        if (wanted != nullptr && slot.run != wanted) continue;
        lost = false;
        if (slot.status.ready && (best == nullptr || slot.status.calls < best->status.calls)) best = &slot;
    }
    if (lost) return Chosen::lost;
    if (best == nullptr) return cannot_start ? Chosen::cannot_start : Chosen::none_yet;
    ++best->status.calls;
    run = best->run;
    state.next = run->slot() + 1;
    return Chosen::one;
}

Place Supervisor::take(const Context& context, const RunPointer& wanted, SteadyTime deadline) {
    RunPointer run;
    Chosen chosen = Chosen::none_yet;
    std::string last_end;
    {
        const std::stop_callback wake(context.stop_token(), [this] { state_.wake_all(); });
        auto state = state_.lock();
        state.wait_until(deadline, [&](State& now) {
            chosen = choose(now, wanted, run);
            return chosen != Chosen::none_yet || context.cancelled();
        });
        last_end = state->slots.front().status.last_end;
    }
    switch (chosen) {
        case Chosen::one: return {shared_from_this(), std::move(run)};
        case Chosen::lost: throw NoProcess(wanted->end(milliseconds(0)) + kLost);
        case Chosen::stopped: throw NoProcess("the worker processes were stopped");
        case Chosen::cannot_start: throw NoProcess("no worker process can be started: " + last_end);
        case Chosen::none_yet: break;
    }
    throw CancelledError();
}

void Supervisor::give_back(const Run& run) noexcept {
    state_.with([&](State& state) {
        Slot& slot = state.slots[run.slot()];
        if (slot.run.get() == &run) --slot.status.calls;
    });
}

void Supervisor::watch(const std::stop_token& stop) {
    std::vector<Watched> all(options_.processes);
    for (std::size_t slot = 0; slot < all.size(); ++slot)
        all[slot].delay = options_.first_delay;
    while (!stop.stop_requested()) {
        for (std::size_t slot = 0; slot < all.size(); ++slot)
            step(slot, all[slot]);
        wait_for_events(all);
    }
    end_all(all);
}

void Supervisor::step(std::size_t slot, Watched& watched) {
    try {
        if (watched.process == nullptr) {
            if (real_clock().now() >= watched.start_at) launch(slot, watched);
            return;
        }
        if (watched.process->became_ready()) {
            state_.with([&](State& state) {
                state.slots[slot].status.ready = true;
                state.slots[slot].failed_starts = 0;
                if (state.description.empty()) state.description = watched.process->description();
            });
            state_.notify_all();
        }
        const auto how = watched.process->end();
        if (how) return ended(slot, watched, *how);
        const bool is_starting = state_.with([&](const State& state) { return !state.slots[slot].status.ready; });
        if (is_starting && real_clock().now() > later(watched.started, options_.start_timeout))
            ended(slot, watched, "was ended after start_timeout");
    } catch (const std::exception& error) {  // it cannot be started
        ended(slot, watched, std::string("could not be started: ") + error.what());
    }
}

void Supervisor::launch(std::size_t slot, Watched& watched) {
    // A name of its own for each run: a client of an earlier run must not reach this one.
    watched.started = real_clock().now();
    std::size_t restarts = state_.with([&](const State& state) { return state.slots[slot].status.restarts; });
    watched.socket = folder_ + '/' + std::to_string(slot) + '-' + std::to_string(restarts);
    watched.process = std::make_unique<WorkerProcess>(options_.command, environment_, watched.socket);
    auto run = std::make_shared<Run>(slot, "unix:" + watched.socket);
    state_.with([&](State& state) {
        state.slots[slot].run.swap(run);
        state.slots[slot].status.pid = watched.process->pid();
    });
}

void Supervisor::ended(std::size_t slot, Watched& watched, const std::string& how) {
    const std::string who =
        "worker process " + (watched.process != nullptr ? std::to_string(watched.process->pid()) + " " : std::string());
    const std::string text = who + how;
    const SteadyTime now = real_clock().now();
    watched.process.reset();
    std::error_code ignored;
    std::filesystem::remove(watched.socket, ignored);
    std::filesystem::remove(default_local_socket(watched.socket), ignored);
    const bool was_ready = state_.with([&](const State& state) { return state.slots[slot].status.ready; });
    const bool was_steady = was_ready && now - watched.started >= options_.steady_after;
    if (was_steady) watched.delay = options_.first_delay;
    watched.start_at = now + watched.delay;
    log::error(text, "; it is started again in ", watched.delay.count(), " ms");
    watched.delay = std::min(watched.delay * 2, options_.longest_delay);
    std::shared_ptr<Run> run;
    state_.with([&](State& state) {
        Slot& of = state.slots[slot];
        run.swap(of.run);
        of.failed_starts += of.status.ready ? 0 : 1;
        if (!of.status.ready && of.status.restarts == 0) state.failure = text + " before it was ready";
        of.status = {options_.name, 0, false, 0, of.status.restarts + 1, text};
    });
    if (run != nullptr) run->set_ended(text);
    state_.notify_all();
}

/// Waits until a process reports or ends, stop() is called, or a process is to be started.
void Supervisor::wait_for_events(const std::vector<Watched>& all) const {
    std::vector<pollfd> files{{wake_.get(), POLLIN, 0}};
    SteadyTime until = real_clock().now() + kLongestWait;
    for (const Watched& watched : all) {
        if (watched.process == nullptr) {
            until = std::min(until, watched.start_at);
        } else {
            files.push_back({watched.process->control(), POLLIN, 0});
            files.push_back({watched.process->descriptor(), POLLIN, 0});
        }
    }
    const auto left = std::chrono::ceil<milliseconds>(until - real_clock().now()).count();
    (void)::poll(files.data(), files.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
}

void Supervisor::end_all(std::vector<Watched>& all) {
    const SteadyTime deadline = later(real_clock().now(), time_to_end_);
    const auto runs = [](const Watched& watched) { return watched.process != nullptr && !watched.process->end(); };
    for (const Watched& watched : all) {
        if (watched.process != nullptr) watched.process->tell_to_end();
    }
    while (std::any_of(all.begin(), all.end(), runs) && real_clock().now() < deadline)
        std::this_thread::sleep_for(milliseconds(5));
    for (const Watched& watched : all) {
        if (watched.process != nullptr) watched.process->kill();
    }
    all.clear();
    std::vector<std::shared_ptr<Run>> left;
    state_.with([&](State& state) {
        for (Slot& slot : state.slots) {
            if (slot.run != nullptr) left.push_back(std::move(slot.run));
            slot.status.ready = false;
            slot.status.pid = 0;
        }
    });
    for (const auto& run : left)
        run->set_ended("the worker processes were stopped");
}

}  // namespace shared_tensor::processes
