#pragma once

#include <optional>

#include "net/server/server.hpp"
#include "server/streams/stream_opener.hpp"

namespace shared_tensor::server {

/// Runs streaming functions that only write, over plain HTTP: items and result become Server-Sent Events of one answer.
class StreamAnswer {
public:
    static constexpr std::string_view kContentType = "text/event-stream";

    StreamAnswer(const StreamOpener& opener, ReplyLimits replies) : opener_(&opener), replies_(replies) {}

    /// Whether the client accepts events.
    static bool is_accepted(const net::Headers& headers);
    /// Runs the call to its end on this thread. Returns an error if the answer was not begun; else nothing.
    std::optional<net::Response> run(const json_rpc::Request& request, const StreamOpener::Function& function,
                                     tensor::Incoming tensors, const CallDefaults& defaults, const Principal& principal,
                                     net::ResponseStream& response_stream) const;

private:
    class Out;
    const StreamOpener* opener_;
    const ReplyLimits replies_;
};

}  // namespace shared_tensor::server
