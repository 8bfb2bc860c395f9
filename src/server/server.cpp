#include <shared_tensor/server.hpp>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>

#include "base/bytes/ids.hpp"
#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/memory/heap.hpp"
#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "server/auth/credentials.hpp"
#include "server/files/url_transports.hpp"
#include "server/local/local_socket.hpp"
#include "server/methods/method_schema.hpp"
#include "server/methods/methods.hpp"
#include "server/option_table.hpp"
#include "server/router.hpp"
#include "server/services.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"

#include <shared_tensor/version.hpp>

namespace shared_tensor {

namespace {

using namespace server;  // NOLINT(google-build-using-namespace): this file wires the module together

constexpr std::chrono::milliseconds kSweepEvery{200};
constexpr std::chrono::milliseconds kFlushTime{1'000};

runtime::DispatcherOptions dispatcher_options(const ServerOptions& options, const detail::CallMemory& memory) {
    return {{options.calls}, options.local_socket == "none" ? nullptr : &memory};
}

net::ServerOptions http_options(const ServerOptions& options) {
    return {{options.http}, options.host, options.port, options.unix_socket, Credentials::tls_of(options)};
}

/// Tensors up to this size share segments, because each segment takes a descriptor.
constexpr std::size_t kSmallTensor = std::size_t{64} << 10;

local::PoolLimits pool_limits(const SharedMemoryLimits& all) {
    return {all.max_bytes, all.max_bytes / 4, all.max_segments - all.max_segments / 2, kSmallTensor};
}

using Frameworks = std::set<const detail::Framework*>;

/// If the framework of functions or models cannot use GPUs, this server shares no tensors on GPUs.
tensor::Viability switch_on_cuda(tensor::Devices& devices, const Frameworks& frameworks) {
    if (tensor::Viability seen = tensor::cuda_viable(); !seen) return seen;
    for (const detail::Framework* framework : frameworks) {
        if (const char* const why = framework->load_cuda()) {
            log::warn("GPUs are not used: ", why);
            return {why};
        }
        tensor::on_gpu_memory_shortage(framework->release_memory);
    }
    return devices.use_cuda(tensor::UseCuda::if_found);
}

/// Devices belong to the process: devices that one server switched on stay on.
void switch_on_devices(const ServerOptions& options, const Frameworks& frameworks) {
    tensor::Devices& devices = tensor::Devices::of_process();  // its thread starts now: later no thread may be left
    if (options.cuda == "off") return;
    const auto usable = switch_on_cuda(devices, frameworks);
    if (!usable && options.cuda == "on") throw std::runtime_error("CUDA cannot be used: " + usable.reason);
    log::debug(usable ? "CUDA tensors are shared" : "CUDA tensors are not shared: ", usable.reason);
}

/// Loads libtorch if the server may have models; else returns null. It is loaded before requests are served: so the
/// operator sees what is missing, and no request waits for it.
const models::TorchModels* torch_for_models(const ServerOptions& options) {
    if (options.models.empty() && options.model_folders.empty()) return nullptr;
    return &models::load_torch(options.libtorch);
}

Frameworks frameworks_of(const Registry& registry, const models::TorchModels* models) {
    Frameworks all(registry.frameworks().begin(), registry.frameworks().end());
    all.insert(detail::framework);
    all.insert(models != nullptr ? models->framework : nullptr);
    all.erase(nullptr);
    return all;
}

/// One client may hold half of each limit, so that it cannot keep other clients out.
Clients::Limits client_limits(const ServerOptions& options) {
    const std::size_t connections = options.http.max_client_connections;
    return {options.http.max_client_requests,
            share_of_one_client(options.http.max_bytes_in_flight),
            connections > 0 ? connections : share_of_one_client(options.http.max_connections),
            share_of_one_client(options.sessions.max_sessions),
            share_of_one_client(options.shared_memory.max_channels),
            share_of_one_client(options.shared_memory.max_segments / 2)};
}

/// Everybody on the network can read a token that is sent without TLS.
void warn_of_plain_tokens(const ServerOptions& options) {
    const bool is_remote = !options.host.empty() && !is_loopback_host(options.host);
    if (is_remote && options.tls.certificate.empty() && !options.insecure)
        log::warn(
            "tokens are sent unencrypted: give the server a certificate (--tls-certificate, --tls-key), or put a proxy "
            "with TLS in front of it");
}

}  // namespace

namespace server {

Services::Services(const Registry& registry, ServerOptions wanted)
    : options(in_force(std::move(wanted))),
      torch(torch_for_models(options)),
      epoch(random_hex(8)),
      compression(CodingOffer::parse(options.compression.codings, options.compression.level)),
      credentials(options),
      clients(client_limits(options)),
      access(options, Credentials::tokens_of(options), clients),
      sessions(options.sessions),
      objects(options.objects, options.sessions.idle),
      leases(options.leases),
      local({access, sessions, leases, epoch, pool_limits(options.shared_memory),
             options.shared_memory.max_segments / 2, options.shared_memory.max_channels, options.http.header_timeout,
             [this] { return transport_facts(); }}),
      allocation(local.pool()),
      names(options.names, options.local_socket == "none" ? nullptr : &local.pool()),
      uploads(options.uploads),
      watches([this](const auto& id, const auto& owner) { return dispatcher.tasks().get(id, owner); }),
      dispatcher(registry, dispatcher_options(options, allocation)),
      models(dispatcher.functions(), torch != nullptr ? models::LoadModel(torch->load) : nullptr, options.model_folders,
             models::ModelTable::kMaxLoaded, [this](const std::string& session) { return sessions.is_open(session); }),
      open_rpc(dispatcher.functions(), SHARED_TENSOR_VERSION, {{"Tensor", schema::tensor_component()}}) {
    dispatcher.tasks().on_changed([this](std::string_view id) { watches.changed(id); });
}

TransportFacts Services::transport_facts() const {
    const auto& devices = tensor::Devices::of_process();
    TransportFacts facts{local.path(), local_reason, devices.viable().reason, {}};
    for (const tensor::DeviceInfo& device : devices.list())
        facts.devices.push_back(device.uuid);
    return facts;
}

}  // namespace server

class Server::Impl {
public:
    Impl(const Registry& registry, ServerOptions wanted)
        : all_(registry, std::move(wanted)),
          rpc_(all_, builtins_),
          sockets_(all_, rpc_),
          router_(all_, rpc_, sockets_, [this] { return running_.load() && all_.dispatcher.pool().healthy(); }),
          transport_(http_options(all_.options), router_) {
        all_.hold = [this](const Principal& who, std::size_t bytes) {
            return transport_.hold_bytes(who.use != nullptr ? who.use->bytes_in_flight.get() : nullptr, bytes);
        };
        const Frameworks frameworks = frameworks_of(registry, all_.torch);
        for (const detail::Framework* framework : frameworks)
            framework->prepare(all_.options.torch_threads);
        switch_on_devices(all_.options, frameworks);
        add_server_methods(builtins_, all_,
                           [this] { return server_info(all_, started_, transport_.stats(), sockets_.sockets()); });
        for (const auto add :
             {add_task_methods, add_object_methods, add_model_methods, add_tensor_methods, add_lease_methods})
            add(builtins_, all_);
        all_.open_rpc.set_methods(builtins_.descriptions());
        for (const std::string& model : all_.options.models)
            all_.models.load_argument(model);
        all_.sessions.on_closed([this](std::string_view session) {
            all_.models.session_closed(session);
            all_.objects.session_ended(session);
            all_.leases.session_ended(url_lease_holder("", session));
            if (session_closed_) session_closed_(session);
        });
    }

    ~Impl() {
        stop(std::chrono::milliseconds(0));
        all_.local.stop();  // also if start() failed: it ends sessions, and their callback uses other members
    }

    bool is_here() const { return process_.is_here(); }

    void start() {
        if (!is_here()) throw std::logic_error("this server belongs to the process that this one was forked from");
        warn_of_plain_tokens(all_.options);
        check_placements();
        background_executor();  // its thread starts now: later no thread may be left
        transport_.start();
        all_.access.set_port(transport_.port());
        start_local();
        maintenance_ = maintenance("st-maintenance", kSweepEvery, [this] {
            all_.dispatcher.sweep();
            all_.clients.sweep();
            if (all_.credentials.sweep(real_clock().now(), all_.access,
                                       [this](auto tls) { transport_.use_tls(std::move(tls)); })) {
                sockets_.close_revoked();
                all_.local.close_revoked();
            }
            all_.watches.sweep();
            all_.sessions.expire();
            all_.leases.expire();
            all_.uploads.expire();
            tensor::Devices::of_process().deferred_frees().sweep();
            all_.objects.expire();
            const net::ServerStats now = transport_.stats();
            heap_.sweep({now.requests, now.threads}, real_clock().now());
        });
        started_ = real_clock().now();
        running_.store(true);
    }

    bool stop(std::chrono::milliseconds drain_time) {
        if (!is_here() || !running_.exchange(false)) return true;
        all_.names.store().close();
        all_.dispatcher.reject_new();
        all_.models.close();
        sockets_.drain();
        const SteadyTime deadline = real_clock().now() + drain_time;
        bool done = all_.dispatcher.drain(deadline);
        done = all_.models.wait_for_loads(deadline) && done;
        sockets_.close();
        done = transport_.stop(kFlushTime) && done;
        alias_ = {};
        all_.local.stop();
        maintenance_ = {};  // ends and joins it
        return done;
    }

    int port() const { return transport_.port(); }
    std::string url() const {
        if (all_.options.host.empty()) return "unix:" + all_.options.unix_socket;
        const std::string host =
            all_.options.host.find(':') == std::string::npos ? all_.options.host : '[' + all_.options.host + ']';
        return (all_.options.tls.certificate.empty() ? "http://" : "https://") + host + ':' + std::to_string(port());
    }
    std::size_t functions() const { return all_.dispatcher.functions().size(); }
    void on_session_closed(std::function<void(std::string_view)> closed) { session_closed_ = std::move(closed); }

private:
    /// A function that needs a device which does not exist makes start() fail, and not its first call.
    void check_placements() const {
        for (const auto& entry : all_.dispatcher.functions().all()) {
            const FunctionRecord& function = *entry->shared;
            const FunctionOptions& wanted = function.options();
            if (const auto rejection = tensor::rejection_of_placement(wanted.device, wanted.dtype); !rejection.empty())
                throw std::invalid_argument(std::string(function.name()) + " (" + function.where() + "): " + rejection);
        }
    }

    /// Without a local channel the server works over HTTP only.
    void start_local() {
        try {
            const std::string path = local_socket_path(all_.options, all_.options.host.empty() ? 0 : port());
            if (!path.empty()) all_.local.start(path);
            if (!path.empty() && !all_.options.unix_socket.empty())
                alias_ = LocalSocketAlias(default_local_socket(all_.options.unix_socket), path);
            all_.local_reason =
                path.empty() ? "this server was started without a local channel (--local-socket none)" : "";
        } catch (const std::exception& error) {
            if (all_.options.local_socket != "auto") throw;
            log::warn("no memory is shared with other processes: ", error.what());
            all_.local_reason = "the server could not open its local channel; its log says why";
        }
    }

    const ProcessMark process_;
    Services all_;
    std::function<void(std::string_view)> session_closed_;
    Builtins builtins_;
    RpcEndpoint rpc_;
    SocketEndpoint sockets_;
    Router router_;
    net::Server transport_;
    LocalSocketAlias alias_;
    HeapTrimmer heap_;  ///< used by the maintenance thread
    std::jthread maintenance_;
    SteadyTime started_{};
    std::atomic<bool> running_{false};
};

// NOLINTNEXTLINE(performance-unnecessary-value-param): the server owns the functions from here on
Server::Server(Registry registry, ServerOptions options)
    : impl_(std::make_unique<Impl>(registry, std::move(options))) {}
Server::~Server() {
    if (!impl_->is_here()) static_cast<void>(impl_.release());  // a copy in a forked child has no threads
}

void Server::start() { impl_->start(); }
int Server::port() const { return impl_->port(); }
std::string Server::url() const { return impl_->url(); }
std::size_t Server::functions() const { return impl_->functions(); }
bool Server::stop(std::chrono::milliseconds drain_time) { return impl_->stop(drain_time); }
void Server::on_session_closed(std::function<void(std::string_view)> closed) {
    impl_->on_session_closed(std::move(closed));
}

}  // namespace shared_tensor
