// Core: fetches tensors that did not come with their answer.

#include <utility>

#include "base/log/log.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "client/transfers/transfer.hpp"
#include "protocol/json_rpc/error.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::client {

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
    options.timeout.reset();  // it limited the call, and the call has been answered
    auto elements = [&] {
        try {
            return download(*this, there.url + ".raw", {.connections = options_.connections}, options).bytes;
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
    auto possible = tensor::parse_transports(of_call.require.empty() ? "shm, body" : of_call.require).transports;
    std::erase(possible, tensor::TransportKind::cuda_ipc);
    options.require = tensor::join(possible);
    if (options.require.empty())
        throw_error(json_rpc::transport_not_possible({{"cuda_ipc", lost.reason}}), "the result of the call, which ran");
    try {
        return send(request(kFetch, detail::ArgumentsOf(named("lease", lost.lease))), options).tensor();
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
