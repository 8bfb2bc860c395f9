#pragma once

#include <optional>

#include "http/server.hpp"
#include "server/stream_opener.hpp"

namespace shared_tensor::server {

/// Calls of functions that only write, over plain HTTP: items and result are Server-Sent Events of one answer.
class StreamAnswer {
public:
    static constexpr std::string_view kContentType = "text/event-stream";

    StreamAnswer(const StreamOpener& opener, ReplyLimits replies) : opener_(&opener), replies_(replies) {}

    /// Whether the client accepts events.
    static bool is_accepted(const http::Headers& headers);
    /// Runs the call to its end, here. The answer is returned where it was not begun: an error.
    std::optional<http::Response> run(const json_rpc::Request& request, const StreamOpener::Function& function,
                                      tensor::Incoming tensors, const CallDefaults& defaults,
                                      const Principal& principal, http::Exchange& exchange) const;

private:
    class Out;
    const StreamOpener* opener_;
    const ReplyLimits replies_;
};

}  // namespace shared_tensor::server
