#include <shared_tensor/client.hpp>

#include <utility>

#include <shared_tensor/json.hpp>

#include "base/system/host_identity.hpp"
#include "base/system/of_this_process.hpp"
#include "client/call/batch_state.hpp"
#include "client/call/core.hpp"
#include "client/call/default_url.hpp"
#include "client/call/session.hpp"
#include "client/streams/stream_call.hpp"
#include "client/tasks/submission.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor {

namespace {

std::shared_ptr<client::Core> real_core(ClientOptions options) {
    auto dependencies = client::real_dependencies(options);
    return std::make_shared<client::Core>(std::move(options), std::move(dependencies));
}

ClientOptions at(std::string url) {
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
    auto request = core.compose(client::Outgoing::Form::single);
    request.call(method, detail::ArgumentsOf<>());
    request.finish();
    return core.send(request, options);
}

/// The options of a call in this process: in a forked child, a client with a session uses the child's session.
class Here {
public:
    Here(const CallOptions& options, const client::Session* session) : options_(&options) {
        if (session == nullptr) return;
        const std::string& token = session->token();
        if (token == options.session) return;
        changed_ = options;
        changed_.session = token;
        options_ = &changed_;
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    const CallOptions& operator*() const { return *options_; }

private:
    const CallOptions* options_;
    CallOptions changed_;
};

std::string text_member(const nlohmann::json& object, const char* name) {
    const auto member = object.find(name);
    return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

}  // namespace

Client::Client() : Client(ClientOptions{}) {}
Client::Client(std::string url) : Client(at(std::move(url))) {}
Client::Client(ClientOptions options) : core_(real_core(std::move(options))) {}
Client::Client(std::shared_ptr<client::Core> core, std::shared_ptr<client::Session> session, CallOptions options)
    : core_(std::move(core)), session_(std::move(session)), options_(std::move(options)) {}

void Client::call_into(std::string_view method, const CallArguments& arguments, detail::ResultSlot& result,
                       Receipt* receipt) const {
    core_->call(method, arguments, result, *Here(options_, session_.get()), receipt);
}

void Client::send_notification(std::string_view method, const CallArguments& arguments) const {
    core_->notify(method, arguments, *Here(options_, session_.get()));
}

std::string Client::submit_task(std::string_view method, const CallArguments& arguments) const {
    const CallOptions keyed = client::with_key(*Here(options_, session_.get()));
    client::StatusSlot slot;
    core_->call("task.submit", client::SubmitArguments(method, arguments, keyed), slot, client::of_submission(keyed));
    return std::move(slot.status.id);
}

std::shared_ptr<detail::CallerStreams> Client::open_stream(std::string_view method,
                                                           const CallArguments& arguments) const {
    return client::open_stream(core_, session_, method, arguments, *Here(options_, session_.get()));
}

Batch Client::batch() const {
    return Batch(shared_in_its_process(new client::BatchState(core_, *Here(options_, session_.get()))));
}

const std::string& Client::session() const { return session_ != nullptr ? session_->token() : options_.session; }

Client Client::with(CallOptions options) const {
    const std::string& own = session();
    const bool stays = options.session.empty() || options.session == own || options.session == options_.session;
    if (stays) options.session = own;
    return {core_, stays ? session_ : nullptr, std::move(options)};
}

Client Client::new_session() const {
    auto session = std::make_shared<client::Session>(core_);
    CallOptions options = options_;
    options.session = session->token();
    return {core_, std::move(session), std::move(options)};
}

ServerInfo Client::info() const {
    const auto answer = ask(*core_, "server.info", repeatable(*Here(options_, session_.get())));
    const auto& json = answer.raw_result();
    if (!json.is_object()) throw ResultMismatch("", "object", json.type_name());
    ServerInfo info;
    info.name = text_member(json, "name");
    info.version = text_member(json, "version");
    info.epoch = text_member(json, "epoch");
    if (const auto uptime = json.find("uptime_ms"); uptime != json.end() && uptime->is_number()) {
        info.uptime = std::chrono::milliseconds(uptime->get<std::int64_t>());
    }
    json_rpc::print_json(json, info.json);
    return info;
}

std::vector<TransportInfo> Client::transports() const {
    const auto& ports = core_->ports();
    nlohmann::json told = ports.offered_transports();
    std::string no_memory;
    if (told.is_null()) {
        const Client once(core_, nullptr, repeatable({}));
        auto opened = once.call<nlohmann::json>("session.open", named("boot_id", boot_id()),
                                                named("pid_namespace", pid_namespace()));
        once.call("session.close", named("session", text_member(opened, "session")));
        told = std::move(opened["transports"]);
        // If the server has a channel, the reason for missing shared memory is on this side.
        if (opened.contains("local_socket")) no_memory = ports.no_memory_reason();
    }
    std::vector<TransportInfo> transports;
    for (const auto& [name, transport] : told.items()) {
        if (!transport.is_object()) continue;
        TransportInfo info{name, transport.value("usable", false), text_member(transport, "reason")};
        if (name == "shm" && !no_memory.empty()) info = {name, false, no_memory};
        transports.push_back(std::move(info));
    }
    return transports;
}

std::string Client::discover() const {
    std::string text;
    json_rpc::print_json(ask(*core_, "rpc.discover", repeatable(*Here(options_, session_.get()))).raw_result(), text);
    return text;
}

std::chrono::nanoseconds Client::ping() const {
    const auto start = std::chrono::steady_clock::now();
    with(repeatable(options_)).call("server.ping");
    return std::chrono::steady_clock::now() - start;
}

TensorRef Client::make_tensor(std::span<const std::int64_t> shape, DType dtype) const {
    return core_->ports().make_tensor(shape, dtype);
}

std::string Client::url() const { return core_->url(); }
ClientStatistics Client::statistics() const { return core_->statistics(); }
void Client::shutdown() const { core_->shutdown(); }

}  // namespace shared_tensor
