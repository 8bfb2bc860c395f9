#pragma once

#include <chrono>
#include <string>

#include <shared_tensor/server.hpp>

#include "http/server.hpp"
#include "server/local_clients.hpp"
#include "server/sessions.hpp"
#include "server/socket_endpoint.hpp"
#include "server/transport_totals.hpp"
#include "service/dispatcher.hpp"
#include "service/object_table.hpp"
#include "service/tensor_store.hpp"
#include "service/upload_table.hpp"

namespace shared_tensor::server {

/// The sources of `server.info`. All of them must outlive the call.
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
    const TransportTotals& transports;
    const service::TensorStore& names;
    const service::UploadTable& uploads;
    const SocketEndpoint& sockets;
    const TransportFacts& transport_facts;
};

/// Returns the result of `server.info`: name, version, epoch, uptime, limits, totals, and the transports, each with the
/// reason if it cannot be used.
json_rpc::Json server_info(const InfoSources& sources);

}  // namespace shared_tensor::server
