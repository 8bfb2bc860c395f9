// Core: uploads, downloads, and tensors that did not come with their answer.

#include <algorithm>
#include <utility>

#include "base/bytes/ids.hpp"
#include "base/log/log.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "net/message/text.hpp"
#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::client {

namespace {

using std::chrono::milliseconds;

/// The transports in `list` except cuda_ipc.
std::string other_transports(std::string_view list) {
    std::string others;
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        const std::string_view transport = net::trim(list.substr(0, comma));
        if (!transport.empty() && transport != "cuda_ipc") others.append(others.empty() ? "" : ", ").append(transport);
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return others;
}

}  // namespace

template <class Transfer>
auto Core::transfer(const std::string& path, const CallOptions& options, Transfer run) {
    check_stop(options, path);
    const SteadyTime start = clock().now();
    const Times times{start, options.timeout ? later(start, *options.timeout) : SteadyTime::max(),
                      later(start, options_.wait_for_server)};
    TransferPort port;
    port.send = [&](net::ClientRequest request) {
        for (const auto& [name, value] : headers_)
            request.headers.add(name, value);
        if (!options.session.empty()) request.headers.add("Shared-Tensor-Session", options.session);
        if (request.deadline == SteadyTime::max()) {  // else it tidies up, after a cancellation too
            request.deadline = std::min(times.deadline, later(clock().now(), options_.answer_limit));
            request.stop = options.stop;
        }
        net::ClientResponse response = here().dependencies.sender->send(request);
        here().reached.store(true, std::memory_order_relaxed);
        return response;
    };
    port.again = [&](const RpcError& error, int number) { return tries_again(error, number, options, times); };
    port.take = [&](std::uint64_t bytes) {
        if (bytes <= options_.max_answer_bytes) return here().dependencies.sender->take_buffer(bytes);
        throw_failure({net::TransportError::Kind::too_large, true,
                       "it has " + std::to_string(bytes) + " bytes, more than this client takes"},
                      path, url());
    };
    port.clock = &clock();
    port.deadline = times.deadline;
    if (ports().session().empty()) port.compression = compression_;
    port.totals = &here().compression;
    return counted(start, [&] { return run(port); });
}

Downloaded Core::download(const std::string& path, const DownloadForm& form, const CallOptions& options) {
    return transfer(path, options, [&](const TransferPort& port) { return client::download(port, path, form); });
}

Uploaded Core::upload(const UploadFile& file, const UploadForm& form, const CallOptions& options) {
    const std::string id = random_hex(16);
    check_stop(options, file.path);
    try {
        return transfer(file.path, options,
                        [&](const TransferPort& port) { return client::upload(port, file, id, form); });
    } catch (const Cancelled&) {
        throw_cancelled(file.path, true);  // an earlier request of the upload may have arrived
    }
}

/// Decides about the next try of a transfer. A try after progress costs nothing of the budget.
bool Core::tries_again(const RpcError& error, int number, const CallOptions& options, const Times& times) {
    if (is_shut_down() || clock().now() >= times.deadline) return false;
    const auto asked_to_wait =
        dynamic_cast<const ServerBusy*>(&error) != nullptr ? details_of(error).retry_after : milliseconds(0);
    if (asked_to_wait.count() > 0) {  // the server works, and asks for a delay: this costs nothing of the budget
        const SteadyTime next = later(clock().now(), asked_to_wait + milliseconds(here().next_id.fetch_add(1) % 16));
        if (next >= times.deadline) return false;
        sleep_until(next, options.stop);
    } else if (number > 0) {
        CallOptions repeatable;
        repeatable.idempotent = true;
        const auto pause = is_start(error, times) ? kStartPause : pause_after(error, repeatable, number);
        const SteadyTime next = later(clock().now(), pause.value_or(milliseconds(0)));
        if (!pause || next >= times.deadline) return false;
        sleep_until(next, options.stop);
    }
    here().retries.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Fetch Core::fetches(const CallOptions& options) {
    Fetch fetch;
    fetch.another_way = [weak = weak_from_this(), options](const NotOpened& lost) {
        const auto self = weak.lock();
        if (self == nullptr) throw InvalidValue("cuda_ipc", "memory that can be opened here", lost.reason);
        return self->fetch(lost, options);
    };
    fetch.by_url = [weak = weak_from_this(), options](const ByUrl& there) {
        const auto self = weak.lock();
        if (self == nullptr) throw InvalidValue("url", "a client that is still there", "one that has ended");
        return self->fetch(there, options);
    };
    return fetch;
}

/// Waits only a short time for the release of the lease, because the lease also ends by itself.
std::shared_ptr<PooledBuffer> Core::fetch(const ByUrl& there, CallOptions options) {
    options.timeout.reset();  // that of the call, which has been answered
    auto elements = [&] {
        try {
            return download(there.url + ".raw", {.connections = options_.connections}, options).bytes;
        } catch (const Cancelled&) {
            throw_cancelled(there.url, true);  // the call that brought the result has run
        }
    }();
    try {
        options.stop = {};
        options.timeout = std::chrono::seconds(5);
        options.require.clear();
        options.idempotency_key.clear();
        notify("lease.release", detail::ArgumentsOf(named("leases", std::vector{there.lease})), options);
    } catch (const RpcError& error) {
        log::debug("the lease of a downloaded tensor could not be released, so it ends after its time limit: ",
                   error.what());
    }
    return elements;
}

/// The call itself has run, so no failure here may say that it has not.
codec::TensorPointer Core::fetch(const NotOpened& lost, const CallOptions& of_call) {
    CallOptions options;
    options.idempotent = true;
    options.timeout = of_call.timeout;
    options.stop = of_call.stop;
    options.require = of_call.require.empty() ? "shm, body" : other_transports(of_call.require);
    if (options.require.empty())
        throw_error(json_rpc::transport_not_possible({{"cuda_ipc", lost.reason}}), "the result of the call, which ran");
    Outgoing request = compose(Outgoing::Form::single);
    request.call(kFetch, detail::ArgumentsOf(named("lease", lost.lease)));
    request.finish();
    try {
        return send(request, options).tensor();
    } catch (const UnknownOrExpired& error) {
        throw TensorExpired(error.code(), error.message(), error.data(), error.what());
    } catch (const Cancelled&) {
        throw_cancelled(kFetch, true);
    } catch (const RpcError& error) {
        throw TransportFailure("the result cannot be opened here (" + lost.reason +
                                   "), and no other transport delivered it: " + error.what(),
                               true);
    }
}

}  // namespace shared_tensor::client
