#include "client/local/tensor_ports.hpp"

#include <stdexcept>
#include <stop_token>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/log/log.hpp"
#include "client/call/failure.hpp"
#include "client/local/shared_memory.hpp"
#include "local/channel/channel.hpp"
#include "protocol/json_rpc/error.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/transports/shm_transport.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::chrono::seconds kTryAgain{1};

using Memory = std::shared_ptr<SharedMemory>;
using Totals = std::shared_ptr<CompressionTotals>;  // shared by the ports and the tensors of their messages

const tensor::Transports& transports_of(const Memory& memory) {
    constexpr const char* kNoChannel = "no local channel to the server is open now: Client::transports() says why";
    static const tensor::Transports without_memory(
        {}, {{tensor::TransportKind::shm, kNoChannel}, {tensor::TransportKind::cuda_ipc, kNoChannel}});
    return memory != nullptr ? memory->transports() : without_memory;
}

/// The tensors of one message: of a request, which are described, or of an answer, which are imported.
class MessageTensors final : public OutgoingTensors {
public:
    /// `session_ended`: the session whose memory an answer may name has ended.
    MessageTensors(Memory memory, Totals totals, tensor::Incoming incoming, tensor::ExportPolicy policy = {},
                   bool session_ended = false)
        : memory_(std::move(memory)),
          totals_(std::move(totals)),
          session_ended_(session_ended),
          transfer_(std::move(incoming), std::move(policy), {}, transports_of(memory_)) {
        transfer_.set_borrow(true);
    }
    MessageTensors(const MessageTensors&) = delete;
    MessageTensors& operator=(const MessageTensors&) = delete;
    ~MessageTensors() override {
        if (totals_ != nullptr) totals_->add(transfer_.compression());
    }

    codec::TensorPointer wrap(const TensorRef& tensor) override { return transfer_.wrap(tensor); }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        try {
            transfer_.describe(tensor, out);
        } catch (const tensor::TransportNotPossible& error) {
            throw_error(json_rpc::transport_not_possible(error.reasons_json()), "an argument");
        }
    }
    const std::vector<BodyPart>& parts() const override { return transfer_.body().parts(); }
    std::string memory() const override { return transfer_.holds_memory() ? memory_->session() : std::string(); }
    std::uint64_t copied() const override {
        std::uint64_t sum = 0;
        for (const auto& count : transfer_.counts())
            sum += count.copied;
        return sum;
    }
    void answered() noexcept override { transfer_.answered(); }

    codec::TensorPointer import(const codec::Json& descriptor) override {
        return import(tensor::parse_descriptor(descriptor));
    }
    codec::TensorPointer import(const tensor::Descriptor& descriptor) {
        if (descriptor.transport == tensor::TransportKind::url) throw by_url(descriptor);
        const bool is_lent = descriptor.transport == tensor::TransportKind::cuda_ipc ||
                             descriptor.transport == tensor::TransportKind::shm;
        if (is_lent) check_session();
        try {
            const bool lies_there = descriptor.transport == tensor::TransportKind::cuda_ipc && memory_ != nullptr;
            codec::TensorPointer tensor = lies_there ? open(descriptor) : transfer_.import(descriptor);
            return descriptor.lease.empty() ? tensor
                                            : tensor::make_handle(tensor->tensor().with_lease(descriptor.lease));
        } catch (const InvalidValue&) {
            if (is_lent) check_session();  // the session may have ended just now
            throw;
        }
    }

private:
    void check_session() const {
        if (session_ended_ || (memory_ != nullptr && !memory_->viable()))
            throw SharedMemory::expired("the local channel that lent it was closed");
    }
    static ByUrl by_url(const tensor::Descriptor& descriptor) {
        constexpr std::string_view kTensors = "/tensors/";
        const auto* path = descriptor.content->get_ptr<const std::string*>();
        if (path == nullptr || !path->starts_with(kTensors))
            throw InvalidValue("url", "a path of the server that begins with /tensors/", "another value");
        return {*path, descriptor.lease};
    }
    codec::TensorPointer open(const tensor::Descriptor& descriptor) {
        if (descriptor.lease.empty()) return transfer_.import(descriptor);
        DeviceServer& devices = memory_->devices();
        if (std::string reason = devices.rejected(); !reason.empty()) throw NotOpened{descriptor.lease, reason};
        try {
            codec::TensorPointer tensor = transfer_.import(descriptor);
            devices.opened();
            return tensor;
        } catch (const tensor::CannotOpen& error) {
            devices.not_opened(error.got, false);
            throw NotOpened{descriptor.lease, error.got};
        }
    }

    const Memory memory_;
    const Totals totals_;  // null for a tensor that came without bytes
    const bool session_ended_;
    tensor::TensorTransfer transfer_;
};

class RealPorts final : public TensorPorts {
public:
    RealPorts(std::string local_socket, std::string token, tensor::UseCuda cuda, std::uint64_t min_shared_bytes)
        : local_socket_(std::move(local_socket)),
          token_(std::move(token)),
          cuda_(cuda),
          min_shared_bytes_(min_shared_bytes) {
        if (local_socket_.empty())
            state_.with(
                [](State& state) { state.reason = "the client uses no local channel (ClientOptions::local_socket)"; });
    }

    std::unique_ptr<OutgoingTensors> outgoing(std::string_view require) const override {
        Memory shared = memory();
        tensor::ExportPolicy policy;
        policy.shm_min_bytes = min_shared_bytes_;
        if (shared == nullptr) policy.compression = compression_.with([](const auto& how) { return how; });
        policy.require = tensor::parse_transports(require).transports;  // the server rejects unknown transports
        policy.accept = {tensor::TransportKind::body};                  // the server accepts bytes behind the JSON
        if (shared != nullptr)
            policy.accept.insert(policy.accept.begin(), {tensor::TransportKind::cuda_ipc, tensor::TransportKind::shm});
        return std::make_unique<MessageTensors>(std::move(shared), totals_, tensor::Incoming{}, std::move(policy));
    }
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                                const std::string& session) const override {
        Memory shared = memory_of(session);
        const bool ended = shared == nullptr && !session.empty();
        return std::make_unique<MessageTensors>(std::move(shared), totals_, tensor::Incoming{bytes, std::move(owner)},
                                                tensor::ExportPolicy{}, ended);
    }

    std::optional<LeasedTensor> leased(std::string_view descriptor, const std::string& session) const override {
        auto read = tensor::read_shm_descriptor(descriptor);
        Memory shared = read ? memory_of(session) : nullptr;
        if (shared == nullptr) return std::nullopt;
        std::string lease = read->lease;
        return LeasedTensor{std::move(lease), [shared = std::move(shared), read = std::move(*read)] {
                                return MessageTensors(shared, nullptr, {}).import(read);
                            }};
    }

    bool uses_another_transport(std::string_view parameter, const std::string& reason) const override {
        const Memory shared = memory();
        if (shared == nullptr || !(parameter.ends_with(".cuda_ipc.handle") || parameter.ends_with(".cuda_ipc.event")))
            return false;
        shared->devices().not_opened(reason, true);
        return !shared->devices().rejected().empty();
    }

    void abandon(const std::vector<std::string>& leases) const override {
        if (const Memory shared = memory()) shared->abandon(leases);
    }

    /// Does not wait for an attempt of another thread to connect.
    Memory memory() const override {
        if (local_socket_.empty()) return nullptr;
        Memory gone;
        const auto [known, connect] = state_.with([&](State& state) {
            drop_dead(state, gone);
            const bool mine = state.memory == nullptr && !state.connecting && real_clock().now() >= state.try_at &&
                              !local::WaitLimit::is_over();
            if (mine) state.connecting = true;
            return std::pair(state.memory, mine);
        });
        return connect ? connected() : known;
    }
    std::string session() const override {
        const Memory shared = memory();
        return shared != nullptr ? shared->session() : std::string();
    }
    void session_rejected(const std::string& session) const override {
        Memory gone;  // destroyed outside the lock
        state_.with([&](State& state) {
            if (state.memory == nullptr || state.memory->session() != session) return;
            gone.swap(state.memory);
            state.try_at = real_clock().now() + kTryAgain;
        });
    }
    bool may_name_memory(const std::string& session) const override {
        const Memory shared = memory();
        return shared != nullptr && shared->has(session);
    }
    void session_closed(const std::string& session) const override {
        if (const Memory shared = state_.with([](const State& state) { return state.memory; }))
            shared->session_closed(session);
    }
    std::optional<std::string> open_stateful_session() const override {
        const Memory shared = settled_memory();
        if (shared == nullptr) return std::nullopt;
        try {
            return shared->open_stateful_session();
        } catch (const local::ChannelGone& gone) {
            log::debug("a session is opened without the local channel: ", gone.what());
        } catch (const json_rpc::Error& error) {
            log::debug("a session is opened without the local channel: ", error.message);
        }
        return std::nullopt;
    }

    void compress(Compression how) const override {
        compression_.with([&](Compression& held) { held = how; });
    }
    CompressionCounts compression() const override { return totals_->counts(); }

    std::string no_memory_reason() const override {
        return state_.with([](const State& state) { return state.memory == nullptr ? state.reason : ""; });
    }

private:
    struct State {
        Memory memory;
        SteadyTime try_at{};  ///< no connection is tried before
        std::string reason;   ///< why the last try failed, or why none is made
        bool connecting = false;
    };

    static void drop_dead(State& state, Memory& gone) {
        if (state.memory != nullptr && !state.memory->viable()) gone.swap(state.memory);
    }

    /// Like memory(), but waits for an attempt of another thread, which may end by that thread's limits, and then makes
    /// its own: a session that was opened without the channel can never use its memory. Within this thread's WaitLimit.
    Memory settled_memory() const {
        if (local_socket_.empty()) return nullptr;
        const auto wake = [this] { state_.wake_all(); };
        const std::stop_callback stops(local::WaitLimit::stop(), wake), ends(local::WaitLimit::end(), wake);
        Memory gone;
        {
            auto state = state_.lock();
            state.wait_until(local::WaitLimit::deadline(later(real_clock().now(), std::chrono::hours(1))),
                             [](const State& now) { return !now.connecting || local::WaitLimit::is_stopped(); });
            drop_dead(*state, gone);
            if (state->memory != nullptr || state->connecting || local::WaitLimit::is_over()) return state->memory;
            state->connecting = true;
        }
        return connected();
    }

    /// The memory of `session`; null if it has ended. An answer names memory of the session that its request named, not
    /// of a later session.
    Memory memory_of(const std::string& session) const {
        if (session.empty()) return nullptr;
        Memory shared = memory();
        return shared != nullptr && shared->session() == session ? shared : nullptr;
    }

    Memory connected() const {
        Memory made;
        std::string reason;
        try {
            (void)tensor::Devices::of_process().use_cuda(cuda_);
            made = SharedMemory::connect(local_socket_, token_);
        } catch (const std::exception& error) {
            reason = error.what();
            log::debug("tensors go as bytes: ", reason);
        }
        state_.with([&](State& state) {
            state.connecting = false;
            state.reason.swap(reason);
            state.memory = made;
            // A call that was stopped says nothing about the channel.
            if (made == nullptr && !local::WaitLimit::is_stopped()) state.try_at = real_clock().now() + kTryAgain;
        });
        state_.notify_all();
        return made;
    }

    const std::string local_socket_, token_;
    const tensor::UseCuda cuda_;
    const std::uint64_t min_shared_bytes_;
    mutable Guarded<State> state_;
    mutable Guarded<Compression> compression_;
    const Totals totals_ = std::make_shared<CompressionTotals>();
};

}  // namespace

std::unique_ptr<TensorPorts> tensor_ports(std::string local_socket, std::string token, const std::string& devices,
                                          std::uint64_t min_shared_bytes) {
    if (devices != "auto" && devices != "cuda" && devices != "none")
        throw std::invalid_argument("devices is \"" + devices + "\": use auto, cuda or none");
    const auto cuda = devices == "none"   ? tensor::UseCuda::no
                      : devices == "cuda" ? tensor::UseCuda::if_found
                                          : tensor::UseCuda::if_loaded;
    return std::make_unique<RealPorts>(std::move(local_socket), std::move(token), cuda, min_shared_bytes);
}

}  // namespace shared_tensor::client
