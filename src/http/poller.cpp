#include "http/poller.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "util/check.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::uint64_t kWakeKey = ~std::uint64_t{0};

std::uint32_t mask_of(Poller::For what) {
    switch (what) {
        case Poller::For::listening: return EPOLLIN;
        case Poller::For::request: return EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
        case Poller::For::hangup: return EPOLLRDHUP | EPOLLONESHOT;
    }
    return 0;
}

int timeout_ms(SteadyTime next) {
    if (next == SteadyTime::max()) return -1;
    const SteadyTime now = std::chrono::steady_clock::now();
    if (next <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::min<std::int64_t>(left, INT_MAX));
}

/// One event that fails must not cost the others of its batch.
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
    : epoll_(SHARED_TENSOR_CHECK_ERRNO(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
    SHARED_TENSOR_CHECK_ERRNO(control(EPOLL_CTL_ADD, wake_.get(), kWakeKey, For::listening) ? 0 : -1, "epoll_ctl");
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

bool Poller::control(int operation, int fd, std::uint64_t key, For what) {
    epoll_event event{};
    event.events = mask_of(what);
    event.data.u64 = key;
    return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

bool Poller::add(int fd, std::uint64_t key, For what) { return control(EPOLL_CTL_ADD, fd, key, what); }
bool Poller::rearm(int fd, std::uint64_t key, For what) { return control(EPOLL_CTL_MOD, fd, key, what); }
void Poller::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::run(PollerEvents& events, const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "st-poller");
    std::array<epoll_event, 256> ready{};
    SteadyTime next = SteadyTime::min();
    while (!stop.stop_requested()) {
        const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), timeout_ms(next));
        for (int i = 0; i < count; ++i) {
            const epoll_event event = ready[static_cast<std::size_t>(i)];
            if (event.data.u64 != kWakeKey) {
                guarded([&] { events.on_event(event.data.u64, event.events); });
                continue;
            }
            std::uint64_t drained = 0;
            [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof drained);
            next = SteadyTime::min();
        }
        const SteadyTime now = std::chrono::steady_clock::now();
        if (now < next) continue;
        next = now + std::chrono::milliseconds(100);  // should on_tick fail
        guarded([&] { next = events.on_tick(now); });
    }
}

}  // namespace shared_tensor::http
