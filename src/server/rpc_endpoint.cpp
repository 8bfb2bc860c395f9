#include "server/rpc_endpoint.hpp"

#include <algorithm>

#include "codec/frame.hpp"
#include "json_rpc/print.hpp"
#include "server/builtin_params.hpp"
#include "server/rpc_item.hpp"
#include "util/log.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;
using service::make_outcome;

namespace {

/// For whoever has no local channel.
const tensor::Media& media_without_memory() {
    static const auto kShm = tensor::make_absent_medium(
        tensor::Way::shm, "the request names no session of a local channel, which carries the memory");
    static const auto kCudaIpc = tensor::make_absent_medium(
        tensor::Way::cuda_ipc, "the request names no session of a local channel, on which device memory is lent");
    static const tensor::Media kMedia(
        {kCudaIpc.get(), kShm.get(), &tensor::data_medium(), &tensor::base64_medium(), &tensor::body_medium()});
    return kMedia;
}

const tensor::Media& media_of(const std::shared_ptr<LocalClient>& client) {
    return client != nullptr ? client->media() : media_without_memory();
}

bool has_url(const std::vector<tensor::Way>& ways) {
    return std::find(ways.begin(), ways.end(), tensor::Way::url) != ways.end();
}

struct Texts {
    std::string_view json;
    std::span<const std::byte> tensors;
};

std::variant<Texts, Error> split(const http::Request& request) {
    if (media_type(request.head.headers) != codec::kFrameContentType) return Texts{request.text(), {}};
    const auto frame = codec::split_frame(request.body->bytes());
    if (!frame) {
        return json_rpc::parse_error(
            "the body is no frame: 8 bytes little endian N, N bytes of JSON with 8 + N a multiple of 64, tensors");
    }
    return Texts{frame->json, frame->tensors};
}

}  // namespace

http::Response RpcEndpoint::answer(const http::Request& request, const Principal& principal,
                                   http::Exchange& exchange) const {
    const auto texts = split(request);
    if (const auto* error = std::get_if<Error>(&texts)) return error_reply(nullptr, *error);
    const auto& [json, tensors] = std::get<Texts>(texts);
    if (json.size() > parsing_.json.max_bytes) {
        return error_reply(nullptr,
                           json_rpc::parse_error("the JSON is longer than " + std::to_string(parsing_.json.max_bytes) +
                                                 " bytes: send tensors as application/vnd.shared-tensor"));
    }
    auto parsed = json_rpc::parse(json, parsing_);
    if (const auto* refused = std::get_if<json_rpc::Response>(&parsed))
        return error_reply(refused->id, *refused->error());
    const auto defaults = read_headers(request.head.headers);
    const SteadyTime now = real_clock().now();
    Message message{principal,
                    ClientWatch(exchange),
                    tensor::TensorExchange({tensors, request.body}),
                    MessageReferences(values_, principal),
                    now,
                    now + builtins_->max_wait()};
    auto& items = std::get<json_rpc::Message>(parsed);
    if (const auto* error = std::get_if<Error>(&defaults)) {
        const auto* only = items.is_batch ? nullptr : std::get_if<json_rpc::Request>(&items.items.front());
        return error_reply(only != nullptr ? only->id.value_or(nullptr) : nullptr, *error);
    }
    return answer_message(message, std::move(items), std::get<CallMeta>(defaults));
}

http::Response RpcEndpoint::answer_message(Message& message, json_rpc::Message parsed, const CallMeta& defaults) const {
    if (parsed.is_batch && !defaults.idempotency_key.empty()) {
        return error_reply(
            nullptr, json_rpc::invalid_request("an Idempotency-Key header on a batch: give each item its own in meta"));
    }
    std::vector<Item> items;
    items.reserve(parsed.items.size());
    for (auto& entry : parsed.items) {
        Item& item = items.emplace_back();
        if (auto* refused = std::get_if<json_rpc::Response>(&entry)) {
            item.request.id = refused->id;
            item.outcome = make_outcome(*refused->error());
        } else {
            item.request = std::move(std::get<json_rpc::Request>(entry));
        }
    }
    http::Response response;
    if (parsed.is_batch) {
        start_all(message, items, defaults);
        response = answer_batch(message, items);
    } else {
        if (items.front().outcome == nullptr) start(message, items.front(), defaults);
        response = answer_one(message, items.front());
    }
    ways_->add(message.exchange);
    return response;
}

void RpcEndpoint::start(Message& message, Item& item, const CallMeta& defaults) const {
    auto meta = read_meta(defaults, item.request.meta);
    if (auto* error = std::get_if<Error>(&meta)) {
        item.outcome = make_outcome(std::move(*error));
        return;
    }
    item.meta = std::move(std::get<CallMeta>(meta));
    if (!enter_session(message, item)) {
        item.outcome = make_outcome(json_rpc::unknown_or_expired("session", epoch_));
        return;
    }
    offer_url(message.principal, item);
    message.exchange.set_media(media_of(item));
    message.exchange.set_borrow(false);
    item.builtin = builtins_->find(item.request.method);
    if (item.builtin == nullptr) start_call(message, item);
}

/// False for a session that is none, or not the caller's.
bool RpcEndpoint::enter_session(Message& message, Item& item) const {
    if (item.meta.session.empty()) return true;
    const auto session = sessions_->touch(item.meta.session, message.principal.name);
    if (!session) return false;
    if (session->keeps_state) item.state_session = item.meta.session;
    if (session->channel != 0) item.client = local_->find(session->channel);
    if (item.client != nullptr) message.client.watch_process(item.client);
    return true;
}

/// To those who ask for it: others would not know that the tensor waits for them.
void RpcEndpoint::offer_url(const Principal& principal, Item& item) const {
    const tensor::ExportPolicy& policy = item.meta.policy;
    if (!has_url(policy.require.empty() ? policy.accept : policy.require)) return;
    service::Lessee lessee{principal.name, url_lessee(principal.name, item.meta.session), 0, false};
    item.url = std::make_unique<const UrlMedia>(server::media_of(item.client), values_.leases, std::move(lessee));
}

const tensor::Media& RpcEndpoint::media_of(const Item& item) {
    return item.url != nullptr ? item.url->media() : server::media_of(item.client);
}

void RpcEndpoint::start_call(Message& message, Item& item) const {
    const SharedFunction* function = dispatcher_->registry().find(item.request.method);
    message.exchange.set_borrow(function != nullptr && function->options().borrows);
    auto timeout = item.meta.timeout;
    if (timeout && !item.inputs.empty()) {  // it waited for them: its time began with the message
        *timeout -= std::chrono::duration_cast<std::chrono::milliseconds>(real_clock().now() - message.begun);
        timeout = std::max(*timeout, std::chrono::milliseconds(0));
    }
    auto started = dispatcher_->call({item.request.method,
                                      item.request.params,
                                      {message.principal.name, item.state_session, {}},
                                      timeout,
                                      item.meta.idempotency_key,
                                      message.exchange,
                                      &message.references});
    if (auto* error = std::get_if<Error>(&started)) {
        item.outcome = make_outcome(std::move(*error));
        return;
    }
    auto& call = std::get<service::StartedCall>(started);
    if (item.request.is_notification()) return dispatcher_->leave_running(std::move(call));
    item.waiter = std::move(call.waiter);
    item.deadline = call.deadline;
}

service::OutcomePointer RpcEndpoint::run_builtin(Message& message, Item& item, const Builtins::Method& method) const {
    message.exchange.set_media(media_of(item));
    try {
        return method({item.request.params, item.meta, message.principal, message.client, message.exchange,
                       message.wait_end, item.state_session, message.references});
    } catch (const BadParameter& bad) {
        return make_outcome(bad.error());
    } catch (const std::bad_alloc&) {
        return make_outcome(json_rpc::out_of_memory("the method needed more memory than there is"));
    } catch (const std::exception& error) {
        log::error(item.request.method, ": ", error.what());
        return make_outcome(json_rpc::internal_error());
    }
}

void RpcEndpoint::finish(Message& message, Item& item) const {
    if (item.outcome) return;
    if (item.builtin != nullptr) {
        item.outcome = run_builtin(message, item, *item.builtin);
        return;
    }
    if (item.waiter == nullptr) return;  // a notification that goes on by itself
    item.outcome = message.client.wait(item.waiter, item.deadline);
    if (!item.outcome)
        item.outcome =
            make_outcome(json_rpc::deadline_exceeded("the call's time is over; ask for more with Request-Timeout"));
    item.waiter.reset();
}

void RpcEndpoint::print(Message& message, Item& item, std::string& json) const {
    message.exchange.set_policy(item.meta.policy);
    message.exchange.set_media(media_of(item));
    HandleGrants grants(values_.objects, *sessions_,
                        {message.principal.name, item.meta.session, item.client ? item.client->lessee().pid : 0});
    print_outcome(item.id(), *item.outcome, message.exchange, grants, replies_, json);
}

http::Response RpcEndpoint::answer_one(Message& message, Item& item) const {
    finish(message, item);
    if (item.request.is_notification()) {
        http::Response nothing;
        nothing.status = 204;
        return nothing;
    }
    std::string json;
    print(message, item, json);
    http::Response response = finish_reply(std::move(json), message.exchange);
    if (item.outcome->failed()) set_status(response, *item.outcome->error());
    return response;
}

http::Response RpcEndpoint::answer_batch(Message& message, std::vector<Item>& items) const {
    json_rpc::BatchWriter writer(replies_.max_batch_bytes);
    for (const Item& item : items) {
        if (!item.request.is_notification()) writer.expect(item.id());
    }
    for (Item& item : items) {
        finish(message, item);
        if (item.request.is_notification()) continue;
        std::string json;
        print(message, item, json);
        writer.add(item.id(), json);
    }
    std::string text = writer.finish();
    if (!text.empty()) return finish_reply(std::move(text), message.exchange);
    http::Response nothing;
    nothing.status = 204;
    return nothing;
}

}  // namespace shared_tensor::server
