#pragma once

#include <string>

#include "server/builtins.hpp"
#include "server/local_clients.hpp"
#include "service/lease_table.hpp"

namespace shared_tensor::server {

/// All of it outlives the methods.
struct LeaseParts {
    service::LeaseTable& leases;
    Sessions& sessions;
    const LocalClients& local;
    std::string epoch;
};

/// lease.list, lease.get, lease.renew, lease.release and lease.revoke.
///
/// A lease is released or renewed only by the client that holds it: nobody else knows whether its tensor is read still.
/// Its principal, and an admin, may revoke it: the memory then goes back to the system and to nobody else.
void add_lease_methods(Builtins& builtins, const LeaseParts& parts);

}  // namespace shared_tensor::server
