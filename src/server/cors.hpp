#pragma once

#include <optional>
#include <string>

#include "http/server.hpp"
#include "server/access.hpp"

namespace shared_tensor::server {

/// What browsers want to hear before a page of another origin may read an answer (the Fetch standard, "CORS protocol").
/// Only origins that the operator named get a word of it.

/// The answer to a browser's question whether a request may come (a preflight); nothing for all other requests.
std::optional<http::Response> answer_preflight(const http::RequestHead& head, const Access& access);

/// Adds to an answer that a page of this request's origin may read it, if it may.
void let_page_read(const http::RequestHead& head, const Access& access, http::Response& response);

}  // namespace shared_tensor::server
