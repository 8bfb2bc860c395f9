#include "server/rpc/reply_context.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <shared_tensor/value.hpp>

#include "protocol/codec/frame.hpp"
#include "protocol/version.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Error;
using json_rpc::Json;

constexpr std::int64_t kMaxTimeoutMs = 24LL * 3600 * 1000;

std::variant<std::chrono::milliseconds, Error> checked_timeout(std::int64_t value, std::string_view name) {
    if (value >= 1 && value <= kMaxTimeoutMs) return std::chrono::milliseconds(value);
    return json_rpc::invalid_params(name, "milliseconds from 1 to 86400000", std::to_string(value));
}

std::variant<std::chrono::milliseconds, Error> parse_timeout(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        return json_rpc::invalid_params("Request-Timeout", "milliseconds from 1 to 86400000",
                                        std::string(1, '"').append(text) + '"');
    }
    return checked_timeout(value, "Request-Timeout");
}

/// Ignores unknown transports. Returns an error if a requirement names only unknown transports.
std::optional<Error> required_transports(std::string_view list, std::vector<tensor::TransportKind>& required) {
    const tensor::TransportList requested = tensor::parse_transports(list);
    if (requested.transports.empty() && !requested.unknown.empty()) {
        Json reasons = Json::object();
        for (const std::string& word : requested.unknown)
            reasons[word] = "this server knows no such transport";
        return json_rpc::transport_not_possible(std::move(reasons));
    }
    required = requested.transports;
    return std::nullopt;
}

std::optional<Error> wrong(const Json& meta, const char* name, bool right, const char* expected) {
    if (right || !meta.contains(name)) return std::nullopt;
    return json_rpc::invalid_request(std::string("meta.") + name + " must be " + expected);
}

std::optional<Error> check_types(const Json& meta) {
    const auto is_text = [&](const char* name) { return meta.contains(name) && meta[name].is_string(); };
    for (const char* name : {"accept", "coding", "require", "idempotency_key", "session", "traceparent"}) {
        if (auto error = wrong(meta, name, is_text(name), "a string")) return error;
    }
    return wrong(meta, "timeout_ms", meta.contains("timeout_ms") && meta["timeout_ms"].is_number_integer(),
                 "an integer");
}

std::optional<Error> read_window(const Json& meta, streams::Window& window) {
    const auto found = meta.find("stream_window");
    if (found == meta.end()) return std::nullopt;
    const auto count = [&](const char* name, std::size_t otherwise) -> std::size_t {
        if (!found->is_object() || !found->contains(name)) return otherwise;
        const Json& number = (*found)[name];
        return number.is_number_unsigned() ? number.get<std::size_t>() : 0;
    };
    window = {count("items", window.items), count("bytes", window.bytes)};
    if (found->is_object() && window.items > 0 && window.bytes > 0) return std::nullopt;
    return json_rpc::invalid_request("meta.stream_window must be an object of \"items\" and \"bytes\", from 1 on");
}

}  // namespace

std::string id_text(const std::optional<json_rpc::Json>& id) {
    constexpr std::size_t kMaxBytes = 64;
    if (!id) return {};
    if (id->is_string()) return id->get_ref<const std::string&>().substr(0, kMaxBytes);
    if (id->is_number_unsigned()) return std::to_string(id->get<std::uint64_t>());  // dump() takes ten times as long
    return id->dump();
}

CallDefaults read_headers(const net::Headers& headers) {
    CallMeta meta;
    if (const auto version = headers.find(kProtocolHeader)) {
        const std::string mismatch = protocol_mismatch(*version, "this server", "the client");
        if (!mismatch.empty()) return json_rpc::invalid_request(mismatch);
    }
    if (const auto accept = headers.find("Shared-Tensor-Accept")) {
        meta.policy.accept = tensor::parse_transports(*accept).transports;
    } else if (const auto types = headers.find("Accept");
               types && types->find(codec::kFrameContentType) != types->npos) {
        meta.policy.accept = {tensor::TransportKind::body, tensor::TransportKind::base64, tensor::TransportKind::data};
    }
    meta.policy.codings = headers.find("Shared-Tensor-Coding").value_or("");
    if (const auto require = headers.find("Shared-Tensor-Require")) {
        if (auto error = required_transports(*require, meta.policy.require)) return std::move(*error);
    }
    if (const auto timeout = headers.find("Request-Timeout")) {
        auto parsed = parse_timeout(*timeout);
        if (auto* error = std::get_if<Error>(&parsed)) return std::move(*error);
        meta.timeout = std::get<std::chrono::milliseconds>(parsed);
    }
    meta.idempotency_key = headers.find("Idempotency-Key").value_or("");
    meta.session = headers.find("Shared-Tensor-Session").value_or("");
    return meta;
}

std::optional<Error> read_meta(const Json& meta, CallMeta& result) {
    if (!meta.is_object()) return std::nullopt;
    if (auto error = check_types(meta)) return error;
    if (meta.contains("accept"))
        result.policy.accept = tensor::parse_transports(meta["accept"].get_ref<const std::string&>()).transports;
    if (meta.contains("require")) {
        if (auto error = required_transports(meta["require"].get_ref<const std::string&>(), result.policy.require))
            return error;
    }
    if (meta.contains("coding")) result.policy.codings = meta["coding"].get<std::string>();
    if (meta.contains("timeout_ms")) {
        auto timeout = checked_timeout(meta["timeout_ms"].get<std::int64_t>(), "meta.timeout_ms");
        if (auto* error = std::get_if<Error>(&timeout)) return std::move(*error);
        result.timeout = std::get<std::chrono::milliseconds>(timeout);
    }
    if (meta.contains("idempotency_key")) result.idempotency_key = meta["idempotency_key"].get<std::string>();
    if (meta.contains("session")) result.session = meta["session"].get<std::string>();
    return read_window(meta, result.stream_window);
}

codec::Json IssuedHandles::describe(const ObjectPointer& object) {
    auto granted = all_->objects.grant(owner_, object);
    if (auto* rejected = std::get_if<runtime::ObjectTable::Rejected>(&granted))
        throw TooManyHandles(std::move(rejected->reason));
    granted_.push_back(std::move(std::get<std::string>(granted)));
    // If the session ended while the call ran, its handles were ended before this one was granted. So they are ended
    // once more.
    if (!owner_.session.empty() && !all_->sessions.is_open(owner_.session)) all_->objects.session_ended(owner_.session);
    return {{"id", granted_.back()}, {"type", object->type}};
}

void IssuedHandles::take_back() {
    all_->objects.release(granted_, std::nullopt);
    granted_.clear();
}

namespace {

/// The transports of a client without a local channel.
const tensor::Transports& transports_without_memory() {
    static const tensor::Transports kTransports(
        {}, {{tensor::TransportKind::shm, "the request names no session of a local channel, which carries the memory"},
             {tensor::TransportKind::cuda_ipc,
              "the request names no session of a local channel, on which device memory is lent"}});
    return kTransports;
}

const tensor::Transports& transports_of(const std::shared_ptr<LocalClient>& client) {
    return client != nullptr ? client->transports() : transports_without_memory();
}

bool has_url(const std::vector<tensor::TransportKind>& transports) {
    return std::find(transports.begin(), transports.end(), tensor::TransportKind::url) != transports.end();
}

}  // namespace

std::string ReplyContext::busy() const {
    const auto& transports = meta.policy.require.empty() ? meta.policy.accept : meta.policy.require;
    const bool only_memory = client != nullptr && !transports.empty() &&
                             std::all_of(transports.begin(), transports.end(),
                                         [](auto transport) { return transport == tensor::TransportKind::shm; });
    return only_memory ? client->busy() : std::string();
}

const tensor::Transports& ReplyContext::transports() const {
    return url != nullptr ? url->transports() : transports_of(client);
}

namespace {

/// Returns false if the session does not exist or is not the caller's.
bool enter_session(Services& all, const Principal& principal, ReplyContext& reply_context) {
    const std::string& token = reply_context.meta.session;
    if (token.empty()) return true;
    const auto session = all.sessions.touch(token, principal.name);
    if (!session) return false;
    if (session->keeps_state) reply_context.state_session = token;
    if (session->channel == 0) return true;
    reply_context.client = all.local.find(session->channel);
    return reply_context.client != nullptr;  // null: the channel was closed, and the session is about to end
}

/// Offers `url` only to clients that ask for it: others would not know that they must fetch the tensor.
void offer_url(Services& all, const Principal& principal, ReplyContext& reply_context) {
    const tensor::ExportPolicy& policy = reply_context.meta.policy;
    if (!has_url(policy.require.empty() ? policy.accept : policy.require)) return;
    runtime::LeaseHolder lease_holder{principal.name, url_lease_holder(principal.name, reply_context.meta.session), 0,
                                      false};
    reply_context.url =
        std::make_unique<const UrlTransports>(transports_of(reply_context.client), all.leases, std::move(lease_holder));
}

}  // namespace

std::optional<Error> find_context(Services& all, const Principal& principal, const CallMeta& defaults, const Json& meta,
                                  ReplyContext& reply_context) {
    reply_context.meta = defaults;
    if (auto error = read_meta(meta, reply_context.meta)) return error;
    if (!enter_session(all, principal, reply_context)) return json_rpc::unknown_or_expired("session", all.epoch);
    if (reply_context.client != nullptr) reply_context.memory = reply_context.client->watch_memory();
    offer_url(all, principal, reply_context);
    tensor::ExportPolicy& policy = reply_context.meta.policy;
    policy.most_data_elements = all.options.replies.max_data_elements;
    if (accepts(policy.codings, Coding::zstd)) policy.compression = all.compression.for_tensors();
    return std::nullopt;
}

IssuedHandles::IssuedHandles(Services& all, const Principal& principal, const ReplyContext& reply_context)
    : all_(&all),
      owner_{principal.name, reply_context.meta.session,
             reply_context.client != nullptr ? reply_context.client->lease_holder().pid : 0} {}

using codec::Unresolved;
using json_rpc::unknown_or_expired;

namespace {

const std::string* text_member(const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? found->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

std::shared_ptr<const codec::Value> MessageReferences::value(const Json& name) {
    if (const Json* id = codec::item_in(name)) {
        const auto found = items_.find(*id);
        if (found != items_.end()) return {found->second, found->second->value()};
        throw InvalidValue({}, "the id of an earlier item of the same batch behind $ref.item", id->dump());
    }
    const auto* text = name.get_ptr<const std::string*>();
    if (text == nullptr || text->empty())
        throw InvalidValue({}, R"("l-...", a name or {"item": id} behind $ref)", "something else");
    if (text->starts_with("l-")) return lease(*text);
    auto named = all_->names.value(principal_->name, *text);
    if (named == nullptr) throw Unresolved(unknown_or_expired("tensor", all_->epoch));
    return named;
}

std::shared_ptr<const codec::Value> MessageReferences::lease(const std::string& id) const {
    codec::TensorPointer tensor = all_->leases.tensor(id, principal_->name);
    if (tensor == nullptr) throw Unresolved(unknown_or_expired("lease", all_->epoch));
    return std::make_shared<const codec::Value>(codec::Value{{{"$tensor", 0}}, {std::move(tensor)}});
}

ObjectPointer MessageReferences::object(const Json& handle) {
    const std::string* id = text_member(handle, "id");
    if (id == nullptr) throw InvalidValue({}, R"({"id": "o-..."} behind $object)", "something else");
    ObjectPointer object = all_->objects.find(*id, principal_->name);
    if (object == nullptr) throw Unresolved(unknown_or_expired("object", all_->epoch));
    if (const std::string* type = text_member(handle, "type"); type != nullptr && *type != object->type)
        throw InvalidValue({}, "a handle that names its object's type, " + object->type, *type);
    return object;
}

}  // namespace shared_tensor::server
