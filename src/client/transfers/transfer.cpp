#include "client/transfers/transfer.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::client {

Transfer::Transfer(Core& core, std::string path, const CallOptions& call)
    : core_(&core), path_(std::move(path)), call_(&call), times_(core.times_of(call)) {
    check_stop(call, path_);
    if (!call.timeout) times_.deadline = SteadyTime::max();  // each request has the limit of an answer
    if (core.ports().session().empty()) compression_ = core.compression_;
}

net::ClientResponse Transfer::send(net::ClientRequest request) const {
    for (const auto& [name, value] : core_->headers_)
        request.headers.add(name, value);
    if (!call_->session.empty()) request.headers.add("Shared-Tensor-Session", call_->session);
    if (request.deadline == SteadyTime::max()) {  // else it tidies up, after a cancellation too
        request.deadline = std::min(times_.deadline, later(clock().now(), core_->options_.answer_limit));
        request.stop = call_->stop;
    }
    Core::Local& local = core_->here();
    net::ClientResponse response = local.dependencies.sender->send(request);
    local.reached.store(true, std::memory_order_relaxed);
    return response;
}

std::shared_ptr<PooledBuffer> Transfer::take(std::uint64_t bytes) const {
    if (bytes <= core_->options_.max_answer_bytes) return core_->here().dependencies.sender->take_buffer(bytes);
    throw_failure({net::TransportError::Kind::too_large, true,
                   "it has " + std::to_string(bytes) + " bytes, more than this client takes"},
                  path_, core_->url());
}

/// A try after progress costs nothing of the retry budget, nor does a try after the delay that the server asked for.
bool Transfer::tries_again(const RpcError& error, int number) const {
    const CallOptions repeatable{.idempotent = true};
    if (!is_safe_to_repeat(error, repeatable) || core_->is_shut_down() || clock().now() >= times_.deadline)
        return false;
    Core::Local& local = core_->here();
    const auto asked_to_wait = error.is(ErrorCode::busy) ? details_of(error).retry_after : std::chrono::milliseconds(0);
    std::optional<std::chrono::milliseconds> pause;
    if (asked_to_wait.count() > 0) {
        pause = asked_to_wait + std::chrono::milliseconds(local.next_id.fetch_add(1) % 16);
    } else if (number > 0) {
        pause = core_->is_start(error, times_) ? kStartPause : core_->pause_after(error, repeatable, number);
        if (!pause) return false;
    }
    if (pause) {
        const SteadyTime next = later(clock().now(), *pause);
        if (next >= times_.deadline) return false;
        core_->sleep_until(next, call_->stop);
    }
    local.retries.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void Transfer::count(const CompressionCounts& bytes) const { core_->here().compression.add(bytes); }

void throw_rejection(const net::ClientResponse& response, const std::string& path) {
    throw_rejection(response, path, path + ": the server", true);
}

void throw_odd(const std::string& path, const std::string& what) { throw ProtocolFailure(path + ": " + what, true); }

std::string field_of(const net::Headers& headers, std::string_view name) {
    return std::string(headers.find(name).value_or(""));
}

void on_threads(std::size_t threads, const std::function<void(const std::function<bool()>& stop)>& work) {
    struct Failure {
        std::exception_ptr reason;
    };
    std::atomic<bool> stopped{false};
    Guarded<Failure> failure;
    const auto guarded = [&]() noexcept {
        try {
            work([&] { return stopped.load(std::memory_order_relaxed); });
        } catch (...) {
            failure.with([](Failure& first) {
                if (!first.reason) first.reason = std::current_exception();
            });
            stopped = true;
        }
    };
    {
        std::vector<std::jthread> others;
        others.reserve(threads);
        try {
            while (others.size() + 1 < threads)
                others.emplace_back(guarded);
        } catch (const std::system_error& error) {  // the transfer goes on with fewer threads
            log::debug("no more threads for a transfer: ", error.what());
        }
        guarded();
    }
    const auto reason = failure.with([](const Failure& first) { return first.reason; });
    if (reason) std::rethrow_exception(reason);
}

}  // namespace shared_tensor::client
