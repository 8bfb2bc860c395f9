#pragma once

#include <chrono>
#include <string>

#include <shared_tensor/server.hpp>

#include "net/server/server.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "runtime/tables/object_table.hpp"
#include "runtime/tables/tensor_store.hpp"
#include "runtime/tables/upload_table.hpp"
#include "server/local/local_clients.hpp"
#include "server/local/sessions.hpp"
#include "server/rpc/socket_endpoint.hpp"
#include "server/transport_totals.hpp"

namespace shared_tensor::server {

/// The sources of `server.info`. All of them must outlive the call.
struct InfoSources {
    const ServerOptions& options;
    const std::string& epoch;
    SteadyTime started;
    runtime::Dispatcher& dispatcher;
    const Sessions& sessions;
    const net::Server& transport;
    const runtime::LeaseTable& leases;
    const runtime::ObjectTable& objects;
    LocalClients& local;
    const TransportTotals& transports;
    const runtime::TensorStore& names;
    const runtime::UploadTable& uploads;
    const SocketEndpoint& sockets;
    const TransportFacts& transport_facts;
};

/// Returns the result of `server.info`: name, version, epoch, uptime, limits, totals, and the transports, each with the
/// reason if it cannot be used.
json_rpc::Json server_info(const InfoSources& sources);

}  // namespace shared_tensor::server
