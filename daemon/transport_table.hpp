#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

/// One line for each transport: "  shm       yes", "  cuda_ipc  no: this server was built without CUDA".
inline std::string transport_table(const std::vector<TransportInfo>& transports) {
    std::size_t width = 0;
    for (const TransportInfo& transport : transports)
        width = std::max(width, transport.name.size());
    std::string table;
    for (const TransportInfo& transport : transports) {
        std::string name = transport.name;
        name.resize(width, ' ');
        table += "  " + name + (transport.usable ? "  yes" : "  no: " + transport.reason) + '\n';
    }
    return table;
}

}  // namespace shared_tensor
