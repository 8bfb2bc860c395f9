#pragma once

#include <optional>

#include "http/server.hpp"
#include "server/stream_opener.hpp"

namespace shared_tensor::server {

/// Calls of functions that only write, over plain HTTP: items and result are the pieces of one answer, as Server-Sent
/// Events or as frames, each behind its length.
class StreamAnswer {
public:
    static constexpr std::string_view kEvents = "text/event-stream";
    static constexpr std::string_view kFrames = "application/vnd.shared-tensor-stream";

    StreamAnswer(const StreamOpener& opener, ReplyLimits replies) : opener_(&opener), replies_(replies) {}

    /// Which of the two the client accepts; empty: neither.
    static std::string_view wanted(const http::Headers& headers);
    /// Runs the call to its end, here. The answer is returned where it was not begun: an error.
    std::optional<http::Response> run(const json_rpc::Request& request, tensor::Incoming tensors,
                                      const http::Headers& headers, const Principal& principal,
                                      http::Exchange& exchange) const;

private:
    class Out;
    const StreamOpener* opener_;
    const ReplyLimits replies_;
};

}  // namespace shared_tensor::server
