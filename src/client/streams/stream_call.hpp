#pragma once

#include <memory>
#include <string_view>

#include <shared_tensor/client_options.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/stream_call.hpp>

namespace shared_tensor::client {

class Core;
class Session;

/// Starts a call that streams, on its own WebSocket. Blocks until the server is about to run the function. The call
/// keeps `session`. Throws as calls do.
std::shared_ptr<detail::CallerStreams> open_stream(const std::shared_ptr<Core>& core, std::shared_ptr<Session> session,
                                                   std::string_view method, const CallArguments& arguments,
                                                   const CallOptions& options);

}  // namespace shared_tensor::client
