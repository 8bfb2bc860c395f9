#include "client/transfers/transfer.hpp"

#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <variant>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/log/log.hpp"
#include "protocol/json_rpc/parse_responses.hpp"

namespace shared_tensor::client {

void throw_odd(const std::string& path, const std::string& what) { throw ProtocolFailure(path + ": " + what, true); }

void throw_rejection(const net::ClientResponse& response, const std::string& path) {
    const auto parsed = json_rpc::parse_responses(response.text());
    if (const auto* responses = std::get_if<std::vector<json_rpc::Response>>(&parsed);
        responses != nullptr && responses->size() == 1 && responses->front().error() != nullptr)
        throw_error(*responses->front().error(), path);
    throw_foreign(path + ": the server", response.status, "without a reason", true);
}

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
