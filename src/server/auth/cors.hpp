#pragma once

#include <optional>
#include <string>

#include "net/server/server.hpp"
#include "server/auth/access.hpp"

namespace shared_tensor::server {

// Headers that let a browser's page of another origin read a response (the Fetch standard, "CORS protocol"). Only
// responses to origins that the operator named have these headers.

/// The response to a preflight request of an allowed origin; nullopt for any other request.
std::optional<net::Response> answer_preflight(const net::RequestHead& head, const Access& access);

/// Adds the headers that let a page of the request's origin read the response, if that origin is allowed.
void let_page_read(const net::RequestHead& head, const Access& access, net::Response& response);

}  // namespace shared_tensor::server
