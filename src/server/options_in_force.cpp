#include <algorithm>
#include <stdexcept>
#include <thread>

#include "base/log/log.hpp"
#include "base/memory/memory_size.hpp"
#include "base/system/descriptors.hpp"
#include "server/local/descriptor_shares.hpp"
#include "server/option_table.hpp"

namespace shared_tensor::server {

namespace {

void lower(std::size_t& limit, std::size_t to, const char* name, std::size_t descriptors) {
    if (to < limit)
        log::info(name, " is ", to, " instead of ", limit, ": the limit of open files (ulimit -n) is ", descriptors);
    limit = to;
}

/// Lowers the limits on what takes descriptors, so that some descriptors are left for answers.
void use_descriptors(ServerOptions& options) {
    constexpr std::size_t kMostSegments = 16'384;  // own segments, and segments of clients: this many each
    const std::size_t limit = options.raise_descriptor_limit ? raise_descriptor_limit() : descriptor_limit();
    const std::size_t open = open_descriptors();
    SharedMemoryLimits& memory = options.shared_memory;
    const DescriptorShares shares = share_descriptors(
        {options.http.max_connections, options.sockets.max_sockets, memory.max_channels, kMostSegments, kMostSegments},
        memory.max_segments, limit - std::min(limit, open));
    lower(options.http.max_connections, shares.connections, "--max-connections", limit);
    lower(options.sockets.max_sockets, shares.web_sockets, "--max-web-sockets", limit);
    lower(memory.max_channels, shares.local_channels, "--max-local-channels", limit);
    memory.max_segments = shares.own_segments + shares.clients_segments;
}

void if_zero(std::size_t& value, std::size_t otherwise) {
    if (value == 0) value = otherwise;
}

}  // namespace

ServerOptions in_force(ServerOptions options) {
    if (options.host.empty() && options.unix_socket.empty())
        throw std::invalid_argument("the server has nowhere to listen: give a host or a Unix socket");
    if (options.cuda != "auto" && options.cuda != "on" && options.cuda != "off")
        throw std::invalid_argument("cuda is \"" + options.cuda + "\": use auto, on or off");
    WorkerLimits& pool = options.calls.pool;
    if (pool.queue_limit == 0) throw std::invalid_argument("queue must be at least 1");
    use_descriptors(options);
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency()), memory = memory_size();
    if_zero(pool.workers, std::max<std::size_t>(4, cores));
    if_zero(options.torch_threads, std::max<std::size_t>(1, cores / pool.workers));
    if_zero(options.http.max_bytes_in_flight, memory / 4);
    if_zero(options.shared_memory.max_bytes, memory / 2);
    if_zero(options.leases.max_kept_bytes, memory / 4);
    if_zero(options.names.max_bytes, memory / 4);
    if_zero(options.uploads.max_bytes, memory / 4);
    return options;
}

}  // namespace shared_tensor::server
