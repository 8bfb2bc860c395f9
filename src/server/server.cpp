#include <shared_tensor/server.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <system_error>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "base/memory/heap.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"
#include "server/auth/credentials.hpp"
#include "server/methods/methods.hpp"
#include "server/metrics/collect.hpp"
#include "server/metrics/operations.hpp"
#include "server/router.hpp"
#include "server/services.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor {

namespace {

using namespace server;  // NOLINT(google-build-using-namespace): this file wires the module together

constexpr std::chrono::milliseconds kSweepEvery{200};
constexpr std::chrono::milliseconds kFlushTime{1'000};

net::ServerOptions http_options(const ServerOptions& options) {
    return {{options.http},           options.host, options.port, options.unix_socket, Credentials::tls_of(options),
            options.inherited_sockets};
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

Frameworks frameworks_of(const Registry& registry, const models::TorchModels* models) {
    Frameworks all(registry.frameworks().begin(), registry.frameworks().end());
    all.insert(detail::framework);
    all.insert(models != nullptr ? models->framework : nullptr);
    all.erase(nullptr);
    return all;
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

class Server::Impl {
public:
    Impl(const Registry& registry, ServerOptions wanted)
        : all_(registry, std::move(wanted)),
          rpc_(all_, builtins_),
          sockets_(all_, rpc_),
          router_(all_, rpc_, sockets_, state()),
          transport_(http_options(all_.options), router_) {
        if (!all_.options.operations.listen.empty())
            operations_ = std::make_unique<Operations>(all_.options.operations, all_.options.http, state());
        all_.hold = [this](const Principal& who, std::size_t bytes) {
            return transport_.hold_bytes(who.use != nullptr ? who.use->bytes_in_flight.get() : nullptr, bytes);
        };
        const Frameworks frameworks = frameworks_of(registry, all_.torch);
        for (const detail::Framework* framework : frameworks)
            framework->prepare(all_.options.torch_threads);
        switch_on_devices(all_.options, frameworks);
        add_server_methods(builtins_, all_, [this] { return info(); });
        for (const auto add : {add_operator_methods, add_task_methods, add_object_methods, add_model_methods,
                               add_tensor_methods, add_lease_methods})
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
    Services& services() { return all_; }

    void start() {
        if (!is_here()) throw std::logic_error("this server belongs to the process that this one was forked from");
        warn_of_plain_tokens(all_.options);
        check_placements();
        background_executor();  // its thread starts now: later no thread may be left
        transport_.start();
        all_.access.set_port(transport_.port());
        if (operations_ != nullptr) operations_->start();
        all_.local.start(all_.options.host.empty() ? 0 : port());
        maintenance_ = maintenance("st-maintenance", kSweepEvery, [this] {
            all_.dispatcher.sweep();
            all_.clients.sweep();
            if (all_.credentials.sweep(real_clock().now(), all_.access,
                                       [this](auto tls) { transport_.use_tls(std::move(tls)); })) {
                sockets_.close_revoked();
                all_.local.close_revoked();
            }
            if (operations_ != nullptr) operations_->sweep(real_clock().now());
            all_.watches.sweep();
            all_.sessions.expire();
            all_.leases.expire();
            all_.uploads.expire();
            all_.swarms.expire();
            tensor::Devices::of_process().deferred_frees().sweep();
            all_.objects.expire();
            const bool is_short =
                memory_is_short();  // else no thread may be left for a call, for as long as it stays so
            if (is_short) all_.local.pool().free_idle();
            const net::ServerStats now = transport_.stats();
            heap_.sweep({now.requests, now.threads, is_short}, real_clock().now());
        });
        if (all_.state != nullptr) all_.state->begin();
        started_ = real_clock().now();
        started_at_.store(std::chrono::system_clock::now());
        running_.store(true);
    }

    bool stop(std::chrono::milliseconds drain_time) {
        if (!is_here() || !running_.exchange(false)) return true;
        all_.names.store().close();
        if (!all_.options.inherited_sockets.empty()) transport_.drain();  // new clients wait for the next process
        all_.dispatcher.reject_new();
        all_.models.close();
        sockets_.drain();
        const SteadyTime deadline = later(real_clock().now(), drain_time);
        bool done = all_.dispatcher.drain(deadline);
        done = all_.models.wait_for_loads(deadline) && done;
        sockets_.close();
        done = transport_.stop(kFlushTime) && done;
        all_.local.stop();
        if (all_.state != nullptr) all_.state->close();
        maintenance_ = {};                                          // ends and joins it
        if (operations_ != nullptr) operations_->stop(kFlushTime);  // until then /readyz answers 503
        if (all_.tracer != nullptr) all_.tracer->stop();
        if (all_.access_log != nullptr) all_.access_log->flush();  // a process may end without destructors
        if (done) all_.models.clear();
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
    bool is_ready() const { return running_.load() && all_.dispatcher.pool().healthy(); }
    ServerState state() {
        return {[this] { return is_ready(); },
                [this] {
                    return metrics_text(all_, builtins_,
                                        {transport_.stats(), sockets_.sockets(), started_at_.load(), is_ready()});
                }};
    }
    json_rpc::Json info() {
        json_rpc::Json info = server_info(all_, started_, transport_.stats(), sockets_.sockets());
        if (operations_ != nullptr) info["operations"] = operations_->url();
        return info;
    }
    /// A function that needs a device which does not exist makes start() fail, and not its first call.
    void check_placements() const {
        for (const auto& entry : all_.dispatcher.functions().all()) {
            const FunctionRecord& function = *entry->shared;
            const FunctionOptions& wanted = function.options();
            if (const auto rejection = tensor::rejection_of_placement(wanted.device, wanted.dtype); !rejection.empty())
                throw std::invalid_argument(std::string(function.name()) + " (" + function.where() + "): " + rejection);
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
    std::unique_ptr<Operations> operations_;  ///< null without such a port
    HeapTrimmer heap_;                        ///< used by the maintenance thread
    std::jthread maintenance_;
    SteadyTime started_{};
    std::atomic<SystemTime> started_at_{};
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
server::Services& Server::services() const { return impl_->services(); }
void Server::on_session_closed(std::function<void(std::string_view)> closed) {
    impl_->on_session_closed(std::move(closed));
}

namespace {

std::atomic<int> signal_event{-1};

/// Calls only functions that a signal handler may call.
extern "C" void note_ending_signal(int) {
    const int saved = errno;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(signal_event.load(), &one, sizeof one);
    errno = saved;
}

/// While it lives, SIGTERM and SIGINT make wait() return. A process may have only one.
class EndingSignals {
public:
    EndingSignals() : event_(::eventfd(0, EFD_CLOEXEC)) {
        if (!event_) throw std::system_error(errno, std::system_category(), "eventfd");
        int none = -1;
        if (!signal_event.compare_exchange_strong(none, event_.get()))
            throw std::logic_error("Server::run(): another server of this process runs already");
        struct sigaction action {};
        action.sa_handler = &note_ending_signal;
        action.sa_flags = SA_RESTART;
        ::sigaction(SIGTERM, &action, &terminate_before_);
        ::sigaction(SIGINT, &action, &interrupt_before_);
    }
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;
    ~EndingSignals() {
        ::sigaction(SIGTERM, &terminate_before_, nullptr);
        ::sigaction(SIGINT, &interrupt_before_, nullptr);
        signal_event.store(-1);
    }

    void wait() const {
        std::uint64_t count = 0;
        while (::read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) {
        }
    }

private:
    const UniqueFd event_;
    struct sigaction terminate_before_ {
    }, interrupt_before_{};
};

}  // namespace

bool Server::run(std::chrono::milliseconds drain_time) {
    {
        const EndingSignals signals;
        start();
        signals.wait();
    }
    return stop(drain_time);
}

}  // namespace shared_tensor
