#include <shared_tensor/server.hpp>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>

#include "base/bytes/ids.hpp"
#include "base/concurrency/background.hpp"
#include "base/concurrency/maintenance.hpp"
#include "base/log/log.hpp"
#include "base/memory/heap_trimmer.hpp"
#include "base/system/default_local_socket.hpp"
#include "base/system/process_mark.hpp"
#include "runtime/functions/open_rpc.hpp"
#include "runtime/models/torch_library.hpp"
#include "server/auth/credentials.hpp"
#include "server/files/named_tensors.hpp"
#include "server/files/url_transports.hpp"
#include "server/local/local_clients.hpp"
#include "server/local/local_socket.hpp"
#include "server/methods/method_schema.hpp"
#include "server/methods/methods.hpp"
#include "server/methods/server_info.hpp"
#include "server/option_table.hpp"
#include "server/router.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/transports/shared_allocation.hpp"

#include <shared_tensor/version.hpp>

namespace shared_tensor {

namespace {

using namespace server;  // NOLINT(google-build-using-namespace): this file wires the module together

constexpr std::chrono::milliseconds kSweepEvery{200};
constexpr std::chrono::milliseconds kFlushTime{1'000};

runtime::DispatcherOptions dispatcher_options(const ServerOptions& options, const detail::CallMemory& memory) {
    return {{options.calls}, options.local_socket == "none" ? nullptr : &memory, &tensor::own_result};
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
    if (tensor::Viability seen = tensor::cuda_device().viable(); !seen) return seen;
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

/// A WebSocket ends if its peer sends nothing for this time, not even the answer to a ping. Proxies wait as long.
constexpr std::chrono::milliseconds kSocketIdle{60'000};

net::WebSocketLimits web_socket_limits(const ServerOptions& options) {
    return {options.requests.json.max_bytes, options.http.max_body_bytes, kSocketIdle, options.http.write_timeout,
            options.http.min_bytes_per_second};
}

}  // namespace

class Server::Impl {
public:
    Impl(const Registry& registry, ServerOptions wanted)
        : options_(in_force(std::move(wanted))),
          torch_(torch_for_models(options_)),
          epoch_(random_hex(8)),
          credentials_(options_),
          clients_(client_limits(options_)),
          access_(options_, Credentials::tokens_of(options_), clients_),
          sessions_(options_.sessions),
          objects_(options_.objects, options_.sessions.idle),
          leases_(options_.leases),
          local_({access_, sessions_, leases_, epoch_, pool_limits(options_.shared_memory),
                  options_.shared_memory.max_segments / 2, options_.shared_memory.max_channels,
                  options_.http.header_timeout, [this] { return transport_facts(); }}),
          allocation_(local_.pool()),
          names_(options_.names, options_.local_socket == "none" ? nullptr : &local_.pool()),
          uploads_(options_.uploads),
          watches_([this](const auto& id, const auto& owner) { return dispatcher_.tasks().get(id, owner); }),
          dispatcher_(registry, dispatcher_options(options_, allocation_), &tensor::make_handle),
          models_(dispatcher_.functions(), torch_ != nullptr ? models::LoadModel(torch_->load) : nullptr,
                  options_.model_folders, models::ModelTable::kMaxLoaded,
                  [this](const std::string& session) { return sessions_.is_open(session); }),
          open_rpc_(dispatcher_.functions(), SHARED_TENSOR_VERSION, {{}, {{"Tensor", schema::tensor_component()}}}),
          values_{objects_,
                  leases_,
                  named_values(),
                  epoch_,
                  CodingOffer::parse(options_.compression.codings, options_.compression.level),
                  [this](const Principal& who, std::size_t bytes) {
                      Budget* const own = who.use != nullptr ? who.use->bytes_in_flight.get() : nullptr;
                      return transport_.hold_bytes(own, bytes);
                  },
                  options_.replies.max_data_elements},
          reply_contexts_(sessions_, local_, values_),
          builtins_(options_.max_wait),
          streams_{dispatcher_, reply_contexts_, values_, transports_, StreamWindow(), options_.replies.max_json_bytes},
          rpc_(dispatcher_, builtins_, reply_contexts_, values_, transports_, streams_, options_.requests,
               options_.replies),
          sockets_({rpc_, streams_, watches_, epoch_, options_.replies, options_.sockets, web_socket_limits(options_)}),
          router_({access_,
                   rpc_,
                   {names_, leases_, epoch_, values_.compression, transports_.compression()},
                   {names_, uploads_, epoch_, values_, transports_.compression(), options_.http.max_body_bytes},
                   sockets_,
                   open_rpc_,
                   values_,
                   transports_.compression(),
                   [this] { return ready(); },
                   options_.requests.json.max_bytes,
                   options_.http.max_body_bytes}),
          transport_(http_options(options_), router_) {
        const Frameworks frameworks = frameworks_of(registry, torch_);
        for (const detail::Framework* framework : frameworks)
            framework->prepare(options_.torch_threads);
        switch_on_devices(options_, frameworks);
        dispatcher_.tasks().on_changed([this](std::string_view id) { watches_.changed(id); });
        add_methods();
        for (const std::string& model : options_.models)
            models_.load_argument(model);
        sessions_.on_closed([this](std::string_view session) {
            models_.session_closed(session);
            objects_.session_ended(session);
            leases_.session_ended(url_lease_holder("", session));
            if (session_closed_) session_closed_(session);
        });
    }

    ~Impl() {
        stop(std::chrono::milliseconds(0));
        local_.stop();  // also if start() failed: it ends sessions, and their callback uses other members
    }

    bool is_here() const { return process_.is_here(); }

    void start() {
        if (!is_here()) throw std::logic_error("this server belongs to the process that this one was forked from");
        warn_of_plain_tokens(options_);
        check_placements();
        background_executor();  // its thread starts now: later no thread may be left
        transport_.start();
        access_.set_port(transport_.port());
        start_local();
        maintenance_.emplace("st-maintenance", kSweepEvery, [this] {
            dispatcher_.sweep();
            clients_.sweep();
            if (credentials_.sweep(real_clock().now(), access_,
                                   [this](auto tls) { transport_.use_tls(std::move(tls)); })) {
                sockets_.close_revoked();
                local_.close_revoked();
            }
            watches_.sweep();
            sessions_.expire();
            leases_.expire();
            uploads_.expire();
            tensor::Devices::of_process().deferred_frees().sweep();
            objects_.expire();
            const net::ServerStats now = transport_.stats();
            heap_.sweep({now.requests, now.threads}, real_clock().now());
        });
        started_ = real_clock().now();
        running_.store(true);
    }

    bool stop(std::chrono::milliseconds drain_time) {
        if (!is_here() || !running_.exchange(false)) return true;
        names_.store().close();
        dispatcher_.reject_new();
        models_.close();
        sockets_.drain();
        const SteadyTime deadline = real_clock().now() + drain_time;
        bool done = dispatcher_.drain(deadline);
        done = models_.wait_for_loads(deadline) && done;
        sockets_.close();
        done = transport_.stop(kFlushTime) && done;
        alias_ = {};
        local_.stop();
        maintenance_.reset();
        return done;
    }

    int port() const { return transport_.port(); }
    std::string url() const {
        if (options_.host.empty()) return "unix:" + options_.unix_socket;
        const std::string host =
            options_.host.find(':') == std::string::npos ? options_.host : '[' + options_.host + ']';
        return (options_.tls.certificate.empty() ? "http://" : "https://") + host + ':' + std::to_string(port());
    }
    std::size_t functions() const { return dispatcher_.functions().size(); }
    void on_session_closed(std::function<void(std::string_view)> closed) { session_closed_ = std::move(closed); }

private:
    void add_methods() {
        add_server_methods(builtins_, {dispatcher_, sessions_, [this] { return info(); },
                                       [this] { return transport_facts(); }, open_rpc_, epoch_});
        add_task_methods(builtins_, dispatcher_, epoch_);
        add_object_methods(builtins_, objects_, epoch_);
        add_model_methods(builtins_, models_);
        add_tensor_methods(builtins_, names_, epoch_);
        add_lease_methods(builtins_, {leases_, sessions_, local_, epoch_});
        open_rpc_.set_methods(builtins_.descriptions());
    }

    /// A function that needs a device which does not exist makes start() fail, and not its first call.
    void check_placements() const {
        for (const auto& entry : dispatcher_.functions().all()) {
            const FunctionRecord& function = *entry->shared;
            const FunctionOptions& wanted = function.options();
            if (const auto rejection = tensor::rejection_of_placement(wanted.device, wanted.dtype); !rejection.empty())
                throw std::invalid_argument(std::string(function.name()) + " (" + function.where() + "): " + rejection);
        }
    }

    /// Without a local channel the server works over HTTP only.
    void start_local() {
        try {
            const std::string path = local_socket_path(options_, options_.host.empty() ? 0 : port());
            if (!path.empty()) local_.start(path);
            if (!path.empty() && !options_.unix_socket.empty())
                alias_ = LocalSocketAlias(default_local_socket(options_.unix_socket), path);
            local_reason_ = path.empty() ? "this server was started without a local channel (--local-socket none)" : "";
        } catch (const std::exception& error) {
            if (options_.local_socket != "auto") throw;
            log::warn("no memory is shared with other processes: ", error.what());
            local_reason_ = "the server could not open its local channel; its log says why";
        }
    }

    /// Finds the value of {"$ref": "name"}.
    NamedValues named_values() const {
        return [this](std::string_view name, const Principal& who) { return names_.value(who.name, name); };
    }

    bool ready() const { return running_.load() && dispatcher_.pool().healthy(); }
    TransportFacts transport_facts() const {
        const auto& devices = tensor::Devices::of_process();
        TransportFacts facts{local_.path(), local_reason_, devices.viable().reason, {}};
        for (const tensor::DeviceInfo& device : devices.list())
            facts.devices.push_back(device.uuid);
        return facts;
    }
    json_rpc::Json info() {
        const TransportFacts facts = transport_facts();
        return server_info({options_, epoch_, started_, dispatcher_, sessions_, transport_, leases_, objects_, local_,
                            transports_, names_.store(), uploads_, sockets_, facts});
    }

    const ProcessMark process_;
    const ServerOptions options_;
    const models::TorchModels* const torch_;
    const std::string epoch_;
    Credentials credentials_;
    Clients clients_;
    server::Access access_;
    Sessions sessions_;
    std::function<void(std::string_view)> session_closed_;
    runtime::ObjectTable objects_;
    runtime::LeaseTable leases_;
    LocalClients local_;
    tensor::SharedAllocation allocation_;
    NamedTensors names_;
    runtime::UploadTable uploads_;
    TransportTotals transports_;
    TaskWatches watches_;  ///< before the dispatcher, whose tasks report changes until they end
    runtime::Dispatcher dispatcher_;
    models::ModelTable models_;
    runtime::OpenRpc open_rpc_;
    const ServerValues values_;
    const ReplyContexts reply_contexts_;
    Builtins builtins_;
    const StreamOpener streams_;
    RpcEndpoint rpc_;
    SocketEndpoint sockets_;
    Router router_;
    net::Server transport_;
    LocalSocketAlias alias_;
    HeapTrimmer heap_;  ///< used by the maintenance thread
    std::optional<Maintenance> maintenance_;
    SteadyTime started_{};
    std::string local_reason_;  ///< why there is no local channel; empty: there is one
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
