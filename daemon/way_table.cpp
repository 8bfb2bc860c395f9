#include "way_table.hpp"

#include <algorithm>

namespace shared_tensor {

std::string way_table(const std::vector<WayInfo>& ways) {
    std::size_t width = 0;
    for (const WayInfo& way : ways)
        width = std::max(width, way.name.size());
    std::string table;
    for (const WayInfo& way : ways) {
        std::string name = way.name;
        name.resize(width, ' ');
        table += "  " + name + (way.usable ? "  yes" : "  no: " + way.reason) + '\n';
    }
    return table;
}

}  // namespace shared_tensor
