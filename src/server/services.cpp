#include "server/services.hpp"

#include <stdexcept>

#include <shared_tensor/version.hpp>

#include "base/bytes/ids.hpp"
#include "server/methods/methods.hpp"
#include "server/option_table.hpp"

namespace shared_tensor::server {

namespace {

runtime::DispatcherOptions dispatcher_options(const Services& all, const detail::CallMemory& memory) {
    return {
        {all.options.calls}, all.options.local_socket == "none" ? nullptr : &memory, all.reporting, all.state.get()};
}

/// Null if neither clients nor a service manager will ever ask for the memory of a named tensor.
local::SegmentPool* pool_for_names(Services& all) {
    return all.options.local_socket == "none" && all.state == nullptr ? nullptr : &all.local.pool();
}

/// Loads libtorch if the server may have models; else returns null. It is loaded before requests are served: so the
/// operator sees what is missing, and no request waits for it.
const models::TorchModels* torch_for_models(const ServerOptions& options) {
    if (options.models.empty() && options.model_folders.empty()) return nullptr;
    return &models::load_torch(options.libtorch);
}

/// Null without such a log. Throws std::runtime_error.
std::unique_ptr<log::LineFile> open_access_log(const std::string& path) try {
    return path.empty() ? nullptr : std::make_unique<log::LineFile>(path);
} catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("access-log: ") + error.what());
}

/// Null without a collector, and in a worker process: the process in front makes the spans of the calls it passes on.
std::unique_ptr<tracing::Tracer> make_tracer(const ServerOptions& options) {
    const TraceOptions& traces = options.traces;
    if (traces.endpoint.empty() || options.named_callers) return nullptr;
    std::string service = !traces.service_name.empty() ? traces.service_name : options.service_name;
    return std::make_unique<tracing::Tracer>(traces, service.empty() ? "shared-tensor-server" : std::move(service));
}

/// One client may hold half of each limit, so that it cannot keep other clients out.
Clients::Limits client_limits(const ServerOptions& options) {
    const std::size_t connections = options.http.max_client_connections;
    return {options.http.max_client_requests,
            share_of_one_client(options.http.max_bytes_in_flight),
            connections > 0 ? connections : share_of_one_client(options.http.max_connections),
            share_of_one_client(options.sessions.max_sessions),
            share_of_one_client(options.shared_memory.max_channels),
            share_of_one_client(options.shared_memory.max_segments / 2),
            share_of_one_client(options.calls.max_streams)};
}

}  // namespace

Services::Services(const Registry& registry, ServerOptions wanted)
    : options(in_force(std::move(wanted))),
      torch(torch_for_models(options)),
      epoch(random_hex(8)),
      compression(CodingOffer::parse(options.compression.codings, options.compression.level)),
      access_log(open_access_log(options.log.access_log)),
      tracer(make_tracer(options)),
      reporting{!options.named_callers, options.log.slow_call, tracer.get()},
      credentials(options),
      clients(client_limits(options)),
      access(options, Credentials::tokens_of(options), clients),
      sessions(options.sessions),
      objects(options.objects, options.sessions.idle),
      leases(options.leases),
      local(*this),
      allocation(local.pool()),
      state(SavedState::open(options.state, local.pool())),
      names_epoch(state != nullptr ? state->epoch() : epoch),
      names(options.names, pool_for_names(*this), state.get()),
      uploads(options.uploads),
      swarms(options.swarms),
      watches([this](const auto& id, const auto& owner) { return dispatcher.tasks().get(id, owner); }),
      dispatcher(registry, dispatcher_options(*this, allocation)),
      models(dispatcher.functions(), torch != nullptr ? models::LoadModel(torch->load) : nullptr, options.model_folders,
             models::ModelTable::kMaxLoaded, [this](const std::string& session) { return sessions.is_open(session); }),
      open_rpc(dispatcher.functions(), SHARED_TENSOR_VERSION, {{"Tensor", schema::tensor_component()}}) {
    dispatcher.tasks().on_changed([this](std::string_view id) { watches.changed(id); });
    if (state != nullptr) state->restore(names.store(), dispatcher);
}

}  // namespace shared_tensor::server
