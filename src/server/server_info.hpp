#pragma once

#include <chrono>
#include <string>

#include <shared_tensor/server.hpp>

#include "http/server.hpp"
#include "server/local_clients.hpp"
#include "server/sessions.hpp"
#include "server/socket_endpoint.hpp"
#include "server/way_totals.hpp"
#include "service/dispatcher.hpp"
#include "service/object_table.hpp"
#include "service/tensor_store.hpp"
#include "service/upload_table.hpp"

namespace shared_tensor::server {

/// Whom `server.info` asks; all of it lives longer than the call.
struct InfoSources {
    const ServerOptions& options;
    const std::string& epoch;
    SteadyTime started;
    service::Dispatcher& dispatcher;
    const Sessions& sessions;
    const http::Server& transport;
    const service::LeaseTable& leases;
    const service::ObjectTable& objects;
    LocalClients& local;
    const WayTotals& ways;
    const service::TensorStore& names;
    const service::UploadTable& uploads;
    const SocketEndpoint& sockets;
    const WayFacts& way_facts;
};

/// What `server.info` tells: name, version, epoch, uptime, ways of transport with the reason for each no, limits,
/// totals.
json_rpc::Json server_info(const InfoSources& sources);

}  // namespace shared_tensor::server
