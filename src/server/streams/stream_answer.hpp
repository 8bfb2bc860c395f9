#pragma once

#include <optional>

#include "net/server/server.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

// Streaming functions that only write, over plain HTTP: items and result become Server-Sent Events of one answer.

/// Whether the client accepts events.
bool accepts_events(const net::Headers& headers);
/// Runs the call to its end on this thread. Returns an error if the answer was not begun; else nothing.
std::optional<net::Response> answer_by_events(Services& all, const json_rpc::Request& request,
                                              const StreamCall::Function& function, tensor::Incoming tensors,
                                              const CallDefaults& defaults, const Principal& principal,
                                              net::ResponseStream& response_stream);

}  // namespace shared_tensor::server
