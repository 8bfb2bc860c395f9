#include "http/elastic_pool.hpp"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "http/connection.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

ElasticPool::ElasticPool(std::size_t max_threads, std::chrono::milliseconds idle_limit, MakeWorker make_worker)
    : max_threads_(max_threads), idle_limit_(idle_limit), make_worker_(std::move(make_worker)) {}

ElasticPool::~ElasticPool() { stop(); }

std::size_t ElasticPool::threads() const {
    std::unique_lock hold(mutex_);
    return threads_.size();
}

bool ElasticPool::submit(std::shared_ptr<Connection> connection) {
    std::unique_lock hold(mutex_);
    if (stopping_) return false;
    if (!idle_.empty()) {
        Seat* seat = idle_.back();
        idle_.pop_back();
        seat->work = std::move(connection);
        seat->called.notify_one();  // under the lock: the seat lives on the stack of the thread that it wakes
        return true;
    }
    if (threads_.size() < max_threads_) start_thread();
    if (threads_.empty()) return false;
    waiting_.push_back(std::move(connection));
    return true;
}

void ElasticPool::start_thread() {
    const std::uint64_t id = next_id_++;
    try {
        threads_.emplace(id, std::jthread([this, id] { run(id); }));  // its first look for work waits for our lock
    } catch (const std::system_error& error) {
        log::warn("no further connection thread can be started: ", error.what());
    }
}

std::shared_ptr<Connection> ElasticPool::next_work() {
    std::unique_lock hold(mutex_);
    if (!waiting_.empty()) {
        auto work = std::move(waiting_.front());
        waiting_.pop_front();
        return work;
    }
    if (stopping_) return nullptr;
    Seat seat;
    idle_.push_back(&seat);
    const auto until = std::chrono::steady_clock::now() + idle_limit_;
    seat.called.wait_until(hold, until, [&] { return seat.work != nullptr || stopping_; });
    if (seat.work == nullptr) std::erase(idle_, &seat);
    return std::move(seat.work);
}

void ElasticPool::run(std::uint64_t id) {
    ::pthread_setname_np(::pthread_self(), "st-connection");
    try {
        const auto worker = make_worker_();
        while (auto connection = next_work())
            worker->serve(std::move(connection));
    } catch (const std::exception& error) {
        log::error("a connection thread ended: ", error.what());
    }
    join_finished();
    std::unique_lock hold(mutex_);
    const auto self = threads_.find(id);
    if (self == threads_.end()) return;  // stop() has it
    finished_.push_back(std::move(self->second));
    threads_.erase(self);
}

/// A thread cannot join itself: whoever ends next, or stop(), does it.
void ElasticPool::join_finished() {
    std::vector<std::jthread> ended;
    std::unique_lock hold(mutex_);
    ended.swap(finished_);
    hold.unlock();
}

void ElasticPool::stop() {
    std::unique_lock hold(mutex_);
    stopping_ = true;
    waiting_.clear();
    for (Seat* seat : idle_)
        seat->called.notify_one();
    auto running = std::move(threads_);
    threads_.clear();
    hold.unlock();
    running.clear();  // jthread joins
    join_finished();
}

}  // namespace shared_tensor::http
