#include <shared_tensor/server.hpp>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "models/torch_library.hpp"
#include "server/credentials.hpp"
#include "server/descriptor_shares.hpp"
#include "server/lease_methods.hpp"
#include "server/local_clients.hpp"
#include "server/local_socket.hpp"
#include "server/model_methods.hpp"
#include "server/named_tensors.hpp"
#include "server/object_methods.hpp"
#include "server/own_methods.hpp"
#include "server/router.hpp"
#include "server/server_info.hpp"
#include "server/tensor_methods.hpp"
#include "server/url_media.hpp"
#include "service/open_rpc.hpp"
#include "tensor/cuda/cuda_device.hpp"
#include "tensor/devices/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/own_result.hpp"
#include "tensor/placement.hpp"
#include "tensor/shared_allocation.hpp"
#include "util/closer.hpp"
#include "util/default_local_socket.hpp"
#include "util/descriptors.hpp"
#include "util/heap_trimmer.hpp"
#include "util/housekeeper.hpp"
#include "util/ids.hpp"
#include "util/log.hpp"
#include "util/memory_size.hpp"
#include "util/process_mark.hpp"

#include <shared_tensor/version.hpp>

namespace shared_tensor {

namespace {

using namespace server;  // NOLINT(google-build-using-namespace): the rooms that this file wires together

constexpr std::chrono::milliseconds kTendEvery{200};
constexpr std::chrono::milliseconds kFlushTime{1'000};

std::size_t cores() { return std::max(1U, std::thread::hardware_concurrency()); }

void lower(std::size_t& limit, std::size_t to, const char* name, std::size_t descriptors) {
    if (to < limit)
        log::info(name, " is ", to, " instead of ", limit, ": the limit of open files (ulimit -n) is ", descriptors);
    limit = to;
}

/// What takes descriptors is bounded by what there are, so that some are left to answer with.
void use_descriptors(ServerOptions& options) {
    constexpr std::size_t kMostSegments = 16'384;  // of each kind
    const std::size_t limit = options.raise_descriptor_limit ? raise_descriptor_limit() : descriptor_limit();
    const std::size_t open = open_descriptors();
    const DescriptorShares shares = share_descriptors(
        {options.max_connections, options.max_web_sockets, options.max_local_channels, kMostSegments, kMostSegments},
        options.max_segments, limit - std::min(limit, open));
    lower(options.max_connections, shares.connections, "--max-connections", limit);
    lower(options.max_web_sockets, shares.web_sockets, "--max-web-sockets", limit);
    lower(options.max_local_channels, shares.local_channels, "--max-local-channels", limit);
    options.max_segments = shares.own_segments + shares.clients_segments;
    if (options.max_untrusted_connections == 0)
        options.max_untrusted_connections = std::max<std::size_t>(1, options.max_connections / 4);
}

ServerOptions completed(ServerOptions options) {
    if (options.host.empty() && options.unix_socket.empty()) {
        throw std::invalid_argument("the server has nowhere to listen: give a host or a Unix socket");
    }
    if (options.cuda != "auto" && options.cuda != "on" && options.cuda != "off")
        throw std::invalid_argument("cuda is \"" + options.cuda + "\": use auto, on or off");
    if (options.stream_window_items == 0 || options.stream_window_bytes == 0)
        throw std::invalid_argument("a stream's window must be at least 1 item and 1 byte");
    if (options.queue == 0) throw std::invalid_argument("queue must be at least 1");
    if (options.workers == 0) options.workers = std::max<std::size_t>(4, cores());
    use_descriptors(options);
    if (options.torch_threads == 0) options.torch_threads = std::max<std::size_t>(1, cores() / options.workers);
    return options;
}

service::DispatcherOptions dispatcher_options(const ServerOptions& options, const detail::CallMemory& memory) {
    service::DispatcherOptions result;
    result.memory = options.local_socket == "none" ? nullptr : &memory;
    result.pool.workers = options.workers;
    result.pool.queue_limit = options.queue;
    result.tasks.max_tasks = options.max_tasks;
    result.tasks.default_ttl = options.task_ttl;
    result.tasks.max_host_bytes = options.max_task_bytes;
    result.tasks.max_device_bytes = options.max_task_bytes;
    result.cache = options.cache;
    result.cache_bytes = options.cache_bytes;
    result.call_timeout = options.call_timeout;
    result.max_streams = options.max_streams;
    result.own_result = &tensor::own_result;
    result.idempotency.max_keys = options.idempotency_keys;
    result.idempotency.window = options.idempotency_window;
    result.idempotency.max_bytes = options.idempotency_bytes;
    return result;
}

http::ServerOptions http_options(const ServerOptions& options) {
    http::ServerOptions result;
    result.host = options.host;
    result.port = options.port;
    result.unix_socket = options.unix_socket;
    result.max_header_line_bytes = options.max_header_bytes;
    result.max_headers = options.max_headers;
    result.max_connections = options.max_connections;
    result.max_connections_of_address = options.max_client_connections;
    result.max_untrusted_connections = options.max_untrusted_connections;
    result.tls = Credentials::tls_of(options);
    result.header_timeout = options.header_timeout;
    result.body_timeout = options.body_timeout;
    result.body_stall_timeout = options.body_stall_timeout;
    result.idle_timeout = options.idle_timeout;
    result.write_timeout = options.write_timeout;
    result.max_chunks = options.max_chunks;
    result.max_bytes_in_flight = options.max_bytes_in_flight;
    result.min_bytes_per_second = options.min_bytes_per_second;
    return result;
}

/// Tensors up to this size lie in segments together: each segment takes a descriptor.
constexpr std::size_t kSmallTensor = std::size_t{64} << 10;

shm::PoolLimits pool_limits(const ServerOptions& options) {
    shm::PoolLimits limits;
    limits.max_bytes = options.max_shared_bytes > 0 ? options.max_shared_bytes : memory_size() / 2;
    limits.max_idle_bytes = limits.max_bytes / 4;
    limits.max_segments = options.max_segments - options.max_segments / 2;
    limits.max_together = kSmallTensor;
    return limits;
}

service::TensorStoreLimits named_limits(const ServerOptions& options) {
    return {options.max_named_tensors, options.max_named_bytes > 0 ? options.max_named_bytes : memory_size() / 4};
}

service::LeaseLimits lease_limits(const ServerOptions& options) {
    service::LeaseLimits limits;
    limits.max_per_client = options.max_client_leases;
    limits.max_leases = options.max_leases;
    limits.confirm_within = options.lease_confirm_within;
    limits.default_ttl = options.lease_ttl;
    limits.max_unwatched_bytes = options.max_kept_bytes > 0 ? options.max_kept_bytes : memory_size() / 4;
    return limits;
}

service::UploadLimits upload_limits(const ServerOptions& options) {
    const std::uint64_t all = options.max_upload_bytes > 0 ? options.max_upload_bytes : memory_size() / 4;
    const std::uint64_t one = options.max_client_upload_bytes > 0 ? options.max_client_upload_bytes : all / 2;
    return {all, one, options.max_uploads, options.max_client_uploads, options.upload_ttl};
}

using Frameworks = std::set<const detail::Framework*>;

/// Where functions or models could do nothing with tensors on GPUs, none are handed over by this server.
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

/// Devices belong to the process: what one server switched on stays so.
void switch_on_devices(const ServerOptions& options, const Frameworks& frameworks) {
    tensor::Devices& devices = tensor::Devices::of_process();  // its thread starts now: later there may be no more
    if (options.cuda == "off") return;
    const auto usable = switch_on_cuda(devices, frameworks);
    if (!usable && options.cuda == "on") throw std::runtime_error("CUDA cannot be used: " + usable.reason);
    log::debug(usable ? "CUDA tensors are shared" : "CUDA tensors are not shared: ", usable.reason);
}

/// Null where no model can come. Before requests are served, so that the operator sees what is missing, and no
/// request waits for it.
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

ReplyLimits reply_limits(const ServerOptions& options) {
    return {options.max_reply_json_bytes, options.max_batch_reply_bytes};
}

/// A stranger may hold half of what all may hold, so that no one client keeps the others out.
Clients::Limits client_limits(const ServerOptions& options) {
    const std::size_t all = options.max_bytes_in_flight > 0 ? options.max_bytes_in_flight : memory_size() / 4;
    const std::size_t one = options.max_client_bytes_in_flight;
    const std::size_t connections = options.max_client_connections;
    const auto half = [](std::size_t limit) { return std::max<std::size_t>(1, limit / 2); };
    return {options.max_client_requests,
            one > 0 ? one : all / 2,
            one,
            connections > 0 ? connections : half(options.max_connections),
            half(options.max_sessions),
            half(options.max_local_channels),
            half(options.max_segments / 2)};
}

/// A token that crosses a network in the clear is anybody's.
void warn_of_plain_tokens(const ServerOptions& options) {
    const bool is_remote = !options.host.empty() && !is_loopback_host(options.host);
    if (is_remote && options.tls_certificate.empty() && !options.insecure)
        log::warn(
            "tokens come unencrypted: give the server a certificate (--tls-certificate, --tls-key), or put a proxy "
            "with TLS in front of it");
}

SocketLimits socket_limits(const ServerOptions& options) {
    SocketLimits limits;
    limits.max_sockets = options.max_web_sockets;
    limits.max_calls = options.max_socket_calls;
    limits.max_watches = options.max_socket_watches;
    limits.transport.max_text_bytes = options.max_json_bytes;
    limits.transport.max_binary_bytes = options.max_body_bytes;
    limits.transport.idle = options.socket_idle;
    limits.transport.stall = options.write_timeout;
    limits.transport.min_bytes_per_second = options.min_bytes_per_second;
    return limits;
}

json_rpc::ParseLimits parse_limits(const ServerOptions& options) {
    return {{options.max_json_depth, options.max_json_bytes}, options.max_batch_items};
}

}  // namespace

class Server::Impl {
public:
    Impl(const Registry& registry, ServerOptions wanted)
        : options_(completed(std::move(wanted))),
          torch_(torch_for_models(options_)),
          epoch_(random_hex(8)),
          credentials_(options_),
          clients_(client_limits(options_)),
          access_(options_, Credentials::tokens_of(options_), clients_),
          sessions_({options_.max_sessions, options_.session_idle}),
          objects_({options_.max_objects, options_.max_client_objects, options_.object_idle}),
          leases_(lease_limits(options_)),
          local_({access_, sessions_, leases_, epoch_, pool_limits(options_), options_.max_segments / 2,
                  options_.max_local_channels, options_.header_timeout, [this] { return way_facts(); }}),
          allocation_(local_.pool()),
          names_(named_limits(options_), options_.max_set_members,
                 options_.local_socket == "none" ? nullptr : &local_.pool()),
          uploads_(upload_limits(options_)),
          watches_([this](const auto& id, const auto& owner) { return dispatcher_.tasks().get(id, owner); }),
          dispatcher_(registry, dispatcher_options(options_, allocation_), &tensor::make_handle),
          models_(dispatcher_.functions(), torch_ != nullptr ? models::LoadModel(torch_->load) : nullptr,
                  options_.model_folders, options_.max_models,
                  [this](const std::string& session) { return sessions_.is_open(session); }),
          open_rpc_(dispatcher_.functions(), SHARED_TENSOR_VERSION, {own_methods(), {{"Tensor", tensor_schema()}}}),
          values_{objects_,
                  leases_,
                  named_values(),
                  epoch_,
                  CodingOffer::parse(options_.compression, options_.compression_level),
                  [this](const Principal& who, std::size_t bytes) {
                      http::BodyBudget* const own = who.use != nullptr ? who.use->bytes_in_flight.get() : nullptr;
                      return transport_.hold_bytes(own, bytes);
                  },
                  options_.max_reply_data_elements},
          recipients_(sessions_, local_, values_),
          builtins_({dispatcher_, sessions_, [this] { return info(); }, [this] { return way_facts(); }, open_rpc_,
                     epoch_, options_.max_wait}),
          streams_{dispatcher_,
                   recipients_,
                   values_,
                   ways_,
                   {options_.stream_window_items, options_.stream_window_bytes},
                   options_.max_reply_json_bytes},
          rpc_(dispatcher_, builtins_, recipients_, values_, ways_, streams_, parse_limits(options_),
               reply_limits(options_)),
          sockets_({rpc_, streams_, watches_, epoch_, reply_limits(options_), socket_limits(options_)}),
          router_({access_,
                   rpc_,
                   {names_, leases_, epoch_, values_.compression, ways_.compression()},
                   {names_, uploads_, epoch_, values_, ways_.compression(), options_.max_body_bytes},
                   sockets_,
                   open_rpc_,
                   values_,
                   ways_.compression(),
                   [this] { return ready(); },
                   options_.max_json_bytes,
                   options_.max_body_bytes}),
          transport_(http_options(options_), router_) {
        const Frameworks frameworks = frameworks_of(registry, torch_);
        for (const detail::Framework* framework : frameworks)
            framework->prepare(options_.torch_threads);
        switch_on_devices(options_, frameworks);
        dispatcher_.tasks().on_changed([this](std::string_view id) { watches_.changed(id); });
        add_lease_methods(builtins_, {leases_, sessions_, local_, epoch_});
        add_tensor_methods(builtins_, names_, epoch_);
        add_object_methods(builtins_, objects_, epoch_);
        add_model_methods(builtins_, models_);
        for (const std::string& model : options_.models)
            models_.load_argument(model);
        sessions_.on_closed([this](std::string_view session) {
            models_.session_closed(session);
            objects_.session_ended(session);
            leases_.session_ended(url_lessee("", session));
            if (session_closed_) session_closed_(session);
        });
    }

    ~Impl() {
        stop(std::chrono::milliseconds(0));
        local_.stop();  // also of a start that failed: its end tells of sessions
    }

    bool is_here() const { return process_.is_here(); }

    void start() {
        if (!is_here()) throw std::logic_error("this server belongs to the process that this one was forked from");
        warn_of_plain_tokens(options_);
        check_placements();
        closer();  // its thread starts now: later there may be no more threads
        transport_.start();
        access_.set_port(transport_.port());
        start_local();
        housekeeper_.emplace("st-housekeeper", kTendEvery, [this] {
            dispatcher_.tend();
            clients_.tend();
            if (credentials_.tend(real_clock().now(), access_,
                                  [this](auto tls) { transport_.use_tls(std::move(tls)); })) {
                sockets_.close_revoked();
                local_.close_revoked();
            }
            watches_.tend();
            sessions_.expire();
            leases_.expire();
            uploads_.expire();
            tensor::Devices::of_process().quarantine().tend();
            objects_.expire();
            const http::ServerStats now = transport_.stats();
            heap_.tend({now.requests, now.threads}, real_clock().now());
        });
        started_ = real_clock().now();
        running_.store(true);
    }

    bool stop(std::chrono::milliseconds drain_time) {
        if (!is_here() || !running_.exchange(false)) return true;
        names_.store().close();
        dispatcher_.refuse_new();
        models_.close();
        sockets_.drain();
        const SteadyTime deadline = real_clock().now() + drain_time;
        bool done = dispatcher_.drain(deadline);
        done = models_.wait_for_loads(deadline) && done;
        sockets_.close();
        done = transport_.stop(kFlushTime) && done;
        alias_ = {};
        local_.stop();
        housekeeper_.reset();
        return done;
    }

    int port() const { return transport_.port(); }
    std::string url() const {
        if (options_.host.empty()) return "unix:" + options_.unix_socket;
        const std::string host =
            options_.host.find(':') == std::string::npos ? options_.host : '[' + options_.host + ']';
        return (options_.tls_certificate.empty() ? "http://" : "https://") + host + ':' + std::to_string(port());
    }
    std::size_t functions() const { return dispatcher_.functions().size(); }
    void on_session_closed(std::function<void(std::string_view)> closed) { session_closed_ = std::move(closed); }

private:
    /// A function that wants a device which is not there fails here, and not at its first call.
    void check_placements() const {
        for (const auto& entry : dispatcher_.functions().all()) {
            const SharedFunction& function = *entry->shared;
            const FunctionOptions& wanted = function.options();
            if (const auto fault = tensor::fault_of_placement(wanted.device, wanted.dtype); !fault.empty())
                throw std::invalid_argument(std::string(function.name()) + " (" + function.where() + "): " + fault);
        }
    }

    /// Without it all goes on by HTTP.
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

    /// What {"$ref": "name"} finds.
    NamedValues named_values() const {
        return [this](std::string_view name, const Principal& who) { return names_.value(who.name, name); };
    }

    bool ready() const { return running_.load() && dispatcher_.pool().healthy(); }
    WayFacts way_facts() const {
        const auto& devices = tensor::Devices::of_process();
        WayFacts facts{local_.path(), local_reason_, devices.viable().reason, {}};
        for (const tensor::DeviceInfo& device : devices.list())
            facts.devices.push_back(device.uuid);
        return facts;
    }
    json_rpc::Json info() {
        const WayFacts facts = way_facts();
        return server_info({options_, epoch_, started_, dispatcher_, sessions_, transport_, leases_, objects_, local_,
                            ways_, names_.store(), uploads_, sockets_, facts});
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
    service::ObjectTable objects_;
    service::LeaseTable leases_;
    LocalClients local_;
    tensor::SharedAllocation allocation_;
    NamedTensors names_;
    service::UploadTable uploads_;
    WayTotals ways_;
    TaskWatches watches_;  ///< before the dispatcher, whose tasks tell it how they go to the last
    service::Dispatcher dispatcher_;
    models::ModelTable models_;
    const service::OpenRpc open_rpc_;
    const ServerValues values_;
    const Recipients recipients_;
    Builtins builtins_;
    const StreamOpener streams_;
    RpcEndpoint rpc_;
    SocketEndpoint sockets_;
    Router router_;
    http::Server transport_;
    LocalSocketAlias alias_;
    HeapTrimmer heap_;  ///< tended by the housekeeper
    std::optional<Housekeeper> housekeeper_;
    SteadyTime started_{};
    std::string local_reason_;  ///< why there is no local channel; empty: there is one
    std::atomic<bool> running_{false};
};

// NOLINTNEXTLINE(performance-unnecessary-value-param): the functions are the server's from here
Server::Server(Registry registry, ServerOptions options)
    : impl_(std::make_unique<Impl>(registry, std::move(options))) {}
Server::~Server() {
    if (!impl_->is_here()) static_cast<void>(impl_.release());  // a forked child's copy: its threads are not there
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
