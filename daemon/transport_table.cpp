#include "transport_table.hpp"

#include <algorithm>

namespace shared_tensor {

std::string transport_table(const std::vector<TransportInfo>& transports) {
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
