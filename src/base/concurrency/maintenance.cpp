#include "base/concurrency/maintenance.hpp"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/log/log.hpp"

namespace shared_tensor {

namespace {

void sweep_once(const std::function<void()>& sweep) {
    try {
        sweep();
    } catch (const std::exception& error) {
        log::error("maintenance: ", error.what());
    }
}

void run(const std::stop_token& stop, std::chrono::milliseconds period, const std::function<void()>& sweep) {
    std::mutex mutex;
    std::condition_variable_any asleep;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
        asleep.wait_for(lock, stop, period, [] { return false; });
        if (!stop.stop_requested()) sweep_once(sweep);
    }
}

}  // namespace

Maintenance::Maintenance(const std::string& thread_name, std::chrono::milliseconds period, std::function<void()> sweep)
    : thread_([period, sweep = std::move(sweep)](const std::stop_token& stop) { run(stop, period, sweep); }) {
    ::pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

}  // namespace shared_tensor
