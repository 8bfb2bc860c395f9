#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "http/server.hpp"
#include "server/refused.hpp"
#include "util/compression.hpp"

namespace shared_tensor::server {

// Content codings of HTTP (RFC 9110, section 8.4): of what comes, and of what goes to those who accept them.

/// That of a request's body; `none` without one. Throws Refused (415) for another coding, or several.
Coding known_coding(const http::Headers& headers);

struct Decoded {
    std::vector<std::byte> bytes;
    std::shared_ptr<const void> share;  ///< of what may be held; as long as they are
};
/// The bytes of a body as they are, `most` at most, counted by `hold` (null: there may be no more). Throws Refused:
/// 413, 503, 400.
Decoded decoded(const http::Request& request, Coding coding, std::size_t most, CompressionTotals& totals,
                const std::function<std::shared_ptr<const void>(std::size_t bytes)>& hold);

/// The answer to what decoded() and known_coding() refused: 415 names the codings that there are.
http::Response coding_refusal(const Refused& refused);

/// Compresses an answer of text, if its reader accepts that and it becomes smaller. A long one is compressed as it is
/// sent, and `response` is then the answer to return from the handler.
void compress_text(const http::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                   http::Response& response, http::Exchange& exchange);

/// Sends a whole file, or a long text, compressed, as it is made; false where its reader does not accept that, or it
/// would not become smaller: nothing has been sent then. `response` says afterwards how it ended.
bool send_compressed(const http::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                     http::Response& response, http::Exchange& exchange);

}  // namespace shared_tensor::server
