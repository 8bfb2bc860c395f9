#pragma once

#include "runtime/tables/lease_table.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::server {

/// The transports of one message, plus `url`: the tensor stays in the server under a lease of its own, and the reader
/// fetches the bytes when it needs them (TensorEndpoint).
class UrlTransports {
public:
    /// `others` and `leases` must outlive it.
    UrlTransports(const tensor::Transports& others, runtime::LeaseTable& leases, runtime::LeaseHolder lease_holder);
    UrlTransports(const UrlTransports&) = delete;
    UrlTransports& operator=(const UrlTransports&) = delete;

    const tensor::Transports& transports() const { return transports_; }

private:
    class Url;
    const std::unique_ptr<const tensor::Transport> url_;
    const tensor::Transports transports_;
};

/// Returns the lease holder of a `url` lease: the session, or the principal if the request names no session. It never
/// equals a client of the local channel, whose leases end with its process.
std::string url_lease_holder(std::string_view principal, std::string_view session);

}  // namespace shared_tensor::server
