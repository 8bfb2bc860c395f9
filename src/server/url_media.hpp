#pragma once

#include "service/lease_table.hpp"
#include "tensor/medium.hpp"

namespace shared_tensor::server {

/// The media of one message, plus `url`: the tensor stays in the server under a lease of its own, and the reader
/// fetches the bytes when it needs them (TensorEndpoint).
class UrlMedia {
public:
    /// `others` and `leases` must outlive it.
    UrlMedia(const tensor::Media& others, service::LeaseTable& leases, service::Lessee lessee);
    UrlMedia(const UrlMedia&) = delete;
    UrlMedia& operator=(const UrlMedia&) = delete;

    const tensor::Media& media() const { return media_; }

private:
    class Url;
    const std::unique_ptr<const tensor::Medium> url_;
    const tensor::Media media_;
};

/// Returns the lease holder of a `url` lease: the session, or the principal if the request names no session. It never
/// equals a client of the local channel, whose leases end with its process.
std::string url_lessee(std::string_view principal, std::string_view session);

}  // namespace shared_tensor::server
