#pragma once

#include <chrono>
#include <string>

#include <shared_tensor/server.hpp>

#include "http/server.hpp"
#include "server/sessions.hpp"
#include "service/dispatcher.hpp"

namespace shared_tensor::server {

/// What `server.info` tells: name, version, epoch, uptime, ways of transport with the reason for each no, limits,
/// totals.
json_rpc::Json server_info(const ServerOptions& options, const std::string& epoch, SteadyTime started,
                           service::Dispatcher& dispatcher, const Sessions& sessions, const http::Server& transport);

}  // namespace shared_tensor::server
