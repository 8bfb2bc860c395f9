#include <shared_tensor/client.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <shared_tensor/json.hpp>

#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "base/system/host.hpp"
#include "client/call/batch_state.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "client/local/shared_memory.hpp"
#include "client/streams/streaming.hpp"
#include "client/tasks/task_watcher.hpp"
#include "local/channel/channel.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor {

namespace client {

/// A session in the server; the destructor closes it. The copies of a Client share it. A forked child opens its own
/// session when it first needs one, and closes only that session.
/// Thread safety: token() from any thread.
class Session {
public:
    /// Opens the session, with the timeout and the stop of `options`. Blocks. Throws as calls do.
    Session(std::shared_ptr<Core> core, const CallOptions& options) : core_(std::move(core)) {
        opened_.get([&] { return std::make_unique<Opened>(*core_, options); });
    }

    /// The token of this process's session. In a forked child the first call opens the child's session: it blocks, and
    /// throws as calls do.
    const std::string& token() const {
        return opened_.get([this] { return std::make_unique<Opened>(*core_, CallOptions()); }).token;
    }

private:
    /// The session of one process.
    struct Opened {
        Opened(Core& owner, const CallOptions& options) : core(owner), token(open(owner, options)) {}
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        /// Blocks for 2 s at most. If the server is not reached, it ends the session by itself some minutes later.
        ~Opened() {
            core.ports().session_closed(token);
            try {
                const CallOptions options{.timeout = std::chrono::seconds(2), .session = token};
                core.notify("session.close", detail::ArgumentsOf<>(), options);
            } catch (const std::exception& error) {
                log::debug("a session could not be closed, so it ends after the server's time limit: ", error.what());
            }
        }

        Core& core;
        const std::string token;
    };

    static std::string open(Core& core, const CallOptions& limits) {
        const CallOptions options{.timeout = limits.timeout, .stop = limits.stop, .idempotent = true};
        const Core::Times times = core.times_of(options);
        const local::WaitLimit limit = core.wait_limit(times.deadline, options.stop);
        if (auto shared = core.ports().open_stateful_session()) return std::move(*shared);
        check_stop(options, "session.open");
        detail::ResultOf<nlohmann::json> answer;
        core.send_within(times, core.request("session.open", detail::ArgumentsOf<>(), options), options).result(answer);
        const auto opened = answer.take();
        const auto token = opened.is_object() ? opened.find("session") : opened.end();
        if (token == opened.end() || !token->is_string())
            throw ResultMismatch("session", "the token of a session", "an answer of session.open without it");
        return token->get<std::string>();
    }

    const std::shared_ptr<Core> core_;
    mutable OfThisProcess<Opened> opened_;
};

namespace {

constexpr std::uint64_t kIds = 1 << 20;  // more than any server accepts in one batch

json_rpc::Json meta_of(const CallOptions& options) {
    json_rpc::Json meta;
    // Servers reject other values, and with them the item.
    if (options.timeout) meta["timeout_ms"] = std::clamp<std::int64_t>(options.timeout->count(), 1, 86'400'000);
    if (!options.idempotency_key.empty()) meta["idempotency_key"] = options.idempotency_key;
    if (!options.require.empty()) meta["require"] = options.require;
    if (!options.session.empty()) meta["session"] = options.session;
    return meta;
}

}  // namespace

BatchState::BatchState(std::shared_ptr<Core> core, CallOptions options)
    : core_(std::move(core)),
      options_(std::move(options)),
      request_(core_->compose(Outgoing::Form::batch, kIds, options_)) {
    options_.idempotency_key.clear();
}

std::size_t BatchState::append(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    require_open();
    const local::WaitLimit limit = core_->wait_limit(options_);
    items_.push_back({request_.call(method, arguments, meta_of(options)), std::string(method)});
    return items_.size() - 1;
}

void BatchState::append_notification(std::string_view method, const CallArguments& arguments) {
    require_open();
    const local::WaitLimit limit = core_->wait_limit(options_);
    request_.notify(method, arguments);
}

/// In a forked child the batch may name memory of the parent, and its items are results of the parent.
void BatchState::check_process() const {
    if (!process_.is_here()) throw_of_parent("this batch", "make another one here by Client::batch()");
}

void BatchState::require_open() const {
    check_process();
    if (sent_) throw std::logic_error("Batch: it was sent already; make another one by Client::batch()");
}

void BatchState::send(Receipt* receipt) {
    require_open();
    sent_ = true;
    if (receipt != nullptr) *receipt = {};
    if (request_.size() == 0) return;  // the protocol has no empty batch
    request_.finish();
    answer_.emplace(core_->send(request_, options_, receipt));
    const auto unread = answer_->unread_leases();  // they may be read much later
    const auto memory = unread.empty() ? nullptr : core_->ports().memory();
    if (memory != nullptr) memory->confirm(unread);
}

void BatchState::result(std::size_t index, detail::ResultSlot& slot) const {
    check_process();
    if (!answer_) {
        throw std::logic_error(sent_ ? "BatchItem: the batch failed as a whole; its send() threw the reason"
                                     : "BatchItem: send() the batch before its results are read");
    }
    const Item& item = items_.at(index);
    core_->read_within(SteadyTime::max(), options_, item.method, [&] { answer_->result(item.id, item.method, slot); });
}

void read_item(const BatchState& state, std::size_t index, detail::ResultSlot& result) { state.result(index, result); }
std::uint64_t item_id(const BatchState& state, std::size_t index) { return state.id(index); }

}  // namespace client

namespace {

std::shared_ptr<client::Core> real_core(ClientOptions options) {
    auto dependencies = client::real_dependencies(options);
    return std::make_shared<client::Core>(std::move(options), std::move(dependencies));
}

ClientOptions client_at(std::string url) {
    ClientOptions options;
    options.url = client::checked_url(std::move(url));
    return options;
}

/// The options of the client's own requests, which may be repeated.
CallOptions repeatable(CallOptions options) {
    options.idempotent = true;
    options.idempotency_key.clear();
    return options;
}

/// Calls one of the server's own methods, without parameters.
client::Incoming ask(client::Core& core, std::string_view method, const CallOptions& options) {
    return core.send(core.request(method, detail::ArgumentsOf<>()), options);
}

/// The options of a call in this process: in a forked child, a client with a session uses the child's session. Writes
/// them to `changed` if they differ from `options`.
const CallOptions& here(const CallOptions& options, const client::Session* session, CallOptions&& changed = {}) {
    if (session == nullptr || session->token() == options.session) return options;
    changed = options;
    changed.session = session->token();
    return changed;
}

}  // namespace

Client::Client() : Client(ClientOptions{}) {}
Client::Client(std::string url) : Client(client_at(std::move(url))) {}
Client::Client(ClientOptions options) : core_(real_core(std::move(options))) {}
Client::Client(std::shared_ptr<client::Core> core, std::shared_ptr<client::Session> session, CallOptions options)
    : core_(std::move(core)), session_(std::move(session)), options_(std::move(options)) {}

void Client::call_into(std::string_view method, const CallArguments& arguments, detail::ResultSlot& result,
                       Receipt* receipt) const {
    core_->call(method, arguments, result, here(options_, session_.get()), receipt);
}

void Client::send_notification(std::string_view method, const CallArguments& arguments) const {
    core_->notify(method, arguments, here(options_, session_.get()));
}

std::string Client::submit_task(std::string_view method, const CallArguments& arguments) const {
    const CallOptions keyed = client::with_key(here(options_, session_.get()));
    client::SlotOf<client::task_status> slot;
    core_->call("task.submit", client::SubmitArguments(method, arguments, keyed), slot, client::of_submission(keyed));
    return std::move(slot.value.id);
}

std::shared_ptr<detail::CallerStreams> Client::open_stream(std::string_view method,
                                                           const CallArguments& arguments) const {
    return client::open_stream(core_, session_, method, arguments, here(options_, session_.get()));
}

Batch Client::batch() const {
    return Batch(shared_in_its_process(new client::BatchState(core_, here(options_, session_.get()))));
}

const std::string& Client::session() const { return session_ != nullptr ? session_->token() : options_.session; }

Client Client::with(CallOptions options) const {
    const std::string& own = session();
    const bool stays = options.session.empty() || options.session == own || options.session == options_.session;
    if (stays) options.session = own;
    return {core_, stays ? session_ : nullptr, std::move(options)};
}

Client Client::new_session() const {
    auto session = std::make_shared<client::Session>(core_, options_);
    CallOptions options = options_;
    options.session = session->token();
    return {core_, std::move(session), std::move(options)};
}

ServerInfo Client::info() const {
    const auto answer = ask(*core_, "server.info", repeatable(here(options_, session_.get())));
    const auto& json = answer.raw_result();
    if (!json.is_object()) throw ResultMismatch("", "object", json.type_name());
    ServerInfo info;
    info.name = json_rpc::text_member(json, "name");
    info.version = json_rpc::text_member(json, "version");
    info.epoch = json_rpc::text_member(json, "epoch");
    if (const auto uptime = json.find("uptime_ms"); uptime != json.end() && uptime->is_number()) {
        info.uptime = std::chrono::milliseconds(uptime->get<std::int64_t>());
    }
    json_rpc::print_json(json, info.json);
    return info;
}

std::vector<TransportInfo> Client::transports() const {
    const auto& ports = core_->ports();
    const local::WaitLimit limit = core_->wait_limit(options_);
    const auto memory = ports.memory();
    nlohmann::json told = memory != nullptr ? memory->offered_transports() : nlohmann::json();
    std::string no_memory;
    if (told.is_null()) {
        const Client once(core_, nullptr, repeatable({.timeout = options_.timeout, .stop = options_.stop}));
        auto opened = once.call<nlohmann::json>("session.open", named("boot_id", boot_id()),
                                                named("pid_namespace", pid_namespace()));
        once.call("session.close", named("session", json_rpc::text_member(opened, "session")));
        told = std::move(opened["transports"]);
        // If the server has a channel, the reason for missing shared memory is on this side.
        if (opened.contains("local_socket")) no_memory = ports.no_memory_reason();
    }
    std::vector<TransportInfo> transports;
    for (const auto& [name, transport] : told.items()) {
        if (!transport.is_object()) continue;
        TransportInfo info{name, transport.value("usable", false), json_rpc::text_member(transport, "reason")};
        if (name == "shm" && !no_memory.empty()) info = {name, false, no_memory};
        transports.push_back(std::move(info));
    }
    return transports;
}

std::string Client::discover() const {
    std::string text;
    json_rpc::print_json(ask(*core_, "rpc.discover", repeatable(here(options_, session_.get()))).raw_result(), text);
    return text;
}

std::chrono::nanoseconds Client::ping() const {
    const auto start = std::chrono::steady_clock::now();
    with(repeatable(options_)).call("server.ping");
    return std::chrono::steady_clock::now() - start;
}

TensorRef Client::make_tensor(std::span<const std::int64_t> shape, DType dtype) const {
    const local::WaitLimit limit = core_->wait_limit(options_);
    const auto memory = core_->ports().memory();
    return memory != nullptr ? memory->make_tensor(shape, dtype) : tensor::allocate(dtype, shape);
}

std::string Client::url() const { return core_->url(); }
ClientStatistics Client::statistics() const { return core_->statistics(); }
void Client::shutdown() const { core_->shutdown(); }

std::size_t Batch::size() const { return state_->size(); }
void Batch::send() { state_->send(); }
void Batch::send(Receipt& receipt) { state_->send(&receipt); }
std::size_t Batch::append(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    return state_->append(method, arguments, options);
}
void Batch::append_notification(std::string_view method, const CallArguments& arguments) {
    state_->append_notification(method, arguments);
}

}  // namespace shared_tensor
