#pragma once

#include "service/lease_table.hpp"
#include "tensor/medium.hpp"

namespace shared_tensor::server {

/// The media of one message, and "url" beside them: a tensor stays in the server, under a lease of its own, and its
/// reader gets the bytes when it wants them (TensorEndpoint).
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

/// Who holds such a lease: the session, or, of requests that name none, the principal. Never the same as a client of
/// the local channel, whose leases end with its process.
std::string url_lessee(std::string_view principal, std::string_view session);

}  // namespace shared_tensor::server
