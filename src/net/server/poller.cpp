#include "net/server/poller.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::net {

namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kWakeKey = ~std::uint64_t{0};
constexpr std::uint64_t kConnectionsKey = kWakeKey - 1;  // smaller keys are listeners
constexpr std::size_t kEventsAtOnce = 64;
constexpr milliseconds kWatch{1};

bool control(int epoll, int operation, int fd, std::uint64_t key, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

std::uint32_t mask_of(Poller::For what) {
    return EPOLLRDHUP | EPOLLONESHOT | (what == Poller::For::request ? EPOLLIN : 0U);
}

int timeout_ms(SteadyTime next) {
    if (next == SteadyTime::max()) return -1;
    const SteadyTime now = std::chrono::steady_clock::now();
    if (next <= now) return 0;
    const auto left = std::chrono::ceil<milliseconds>(next - now).count();
    return static_cast<int>(std::min<std::int64_t>(left, INT_MAX));
}

/// A failed event must not end the others of its batch.
template <class Task>
void guarded(Task task) {
    try {
        task();
    } catch (const std::exception& error) {
        log::error("the connection poller goes on after an error: ", error.what());
    } catch (...) {
        log::error("the connection poller goes on after an error");
    }
}

}  // namespace

Poller::Poller()
    : watched_(SHARED_TENSOR_CHECK_ERRNO(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      connections_(SHARED_TENSOR_CHECK_ERRNO(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
    const auto watch = [this](int fd, std::uint64_t key, std::uint32_t events) {
        const bool added = control(watched_.get(), EPOLL_CTL_ADD, fd, key, events);
        SHARED_TENSOR_CHECK_ERRNO(added ? 0 : -1, "epoll_ctl");
    };
    watch(wake_.get(), kWakeKey, EPOLLIN);
    watch(connections_.get(), kConnectionsKey, EPOLLIN | EPOLLONESHOT);
}

Poller::~Poller() { stop(); }

void Poller::start(PollerEvents& events) {
    thread_ = std::jthread([this, &events](const std::stop_token& stop) { run(events, stop); });
}

void Poller::stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    wake();
    thread_.join();
}

void Poller::wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

bool Poller::add_listener(int fd, std::size_t index) {
    return control(watched_.get(), EPOLL_CTL_ADD, fd, index, EPOLLIN);
}
void Poller::remove(int fd) { ::epoll_ctl(watched_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Poller::add(int fd, std::uint64_t id, For what) {
    return control(connections_.get(), EPOLL_CTL_ADD, fd, id, mask_of(what));
}
bool Poller::rearm(int fd, std::uint64_t id, For what) {
    return control(connections_.get(), EPOLL_CTL_MOD, fd, id, mask_of(what));
}

void Poller::arm_connections() {
    control(watched_.get(), EPOLL_CTL_MOD, connections_.get(), kConnectionsKey, EPOLLIN | EPOLLONESHOT);
}

std::optional<ReadyConnection> Poller::take(milliseconds wait) {
    takes_.fetch_add(1, std::memory_order_relaxed);
    const auto queued = ready_.with([](auto& ready) -> std::optional<ReadyConnection> {
        if (ready.empty()) return std::nullopt;
        const ReadyConnection first = ready.front();
        ready.pop_front();
        return first;
    });
    if (queued) return queued;
    std::array<epoll_event, kEventsAtOnce> events;
    const int count = ::epoll_wait(connections_.get(), events.data(), kEventsAtOnce, static_cast<int>(wait.count()));
    if (count <= 0) return std::nullopt;
    const auto read = [&](int i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const bool hung_up = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        return ReadyConnection{event.data.u64, hung_up, count == 1};
    };
    if (count > 1) {
        ready_.with([&](auto& ready) {
            for (int i = 1; i < count; ++i)
                ready.push_back(read(i));
        });
    }
    return read(0);
}

/// A thread that fills the queue also takes from it, so the queue stays empty once the last thread has seen it empty.
bool Poller::leave() {
    if (has_queued()) return true;
    if (takers_.fetch_sub(1) == 1) arm_connections();
    return false;
}

std::size_t Poller::cores() {
    static const std::size_t kCores = std::max(1U, std::thread::hardware_concurrency());
    return kCores;
}

bool Poller::has_queued() const {
    return ready_.with([](const auto& ready) { return !ready.empty(); });
}

bool Poller::has_ready() const {
    if (has_queued()) return true;
    pollfd connections{connections_.get(), POLLIN, 0};
    return ::poll(&connections, 1, 0) > 0;
}

void Poller::watch_takers(PollerEvents& events) {
    ticks_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t takes = takes_.load(std::memory_order_relaxed);
    const std::size_t takers = takers_.load();
    watching_ = takers > 0;
    const bool too_few = takers < cores() || takes == seen_takes_;
    seen_takes_ = takes;
    if (watching_ && too_few && has_ready()) guarded([&] { events.on_ready(); });
}

void Poller::dispatch(PollerEvents& events, std::uint64_t key, SteadyTime& next) {
    if (key == kConnectionsKey) {
        if (!watching_) look_ = std::chrono::steady_clock::now() + kWatch;
        watching_ = true;
        seen_takes_ = takes_.load(std::memory_order_relaxed);
        events.on_ready();
    } else if (key != kWakeKey) {
        events.on_listener(static_cast<std::size_t>(key));
    } else {
        std::uint64_t drained = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof drained);
        next = SteadyTime::min();
    }
}

void Poller::run(PollerEvents& events, const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "st-poller");
    std::array<epoll_event, 16> ready{};
    SteadyTime next = SteadyTime::min();
    while (!stop.stop_requested()) {
        const int timeout = timeout_ms(watching_ ? std::min(next, look_) : next);
        const int count = ::epoll_wait(watched_.get(), ready.data(), static_cast<int>(ready.size()), timeout);
        for (int i = 0; i < count; ++i)
            guarded([&] { dispatch(events, ready[static_cast<std::size_t>(i)].data.u64, next); });
        const SteadyTime now = std::chrono::steady_clock::now();
        if (watching_ && now >= look_) {
            watch_takers(events);
            look_ = now + kWatch;
        }
        if (now < next) continue;
        next = now + milliseconds(100);  // should on_tick fail
        guarded([&] { next = events.on_tick(now); });
    }
}

}  // namespace shared_tensor::net
