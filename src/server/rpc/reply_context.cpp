#include "server/rpc/reply_context.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <shared_tensor/value.hpp>

#include "net/message/fields.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/version.hpp"
#include "server/files/files.hpp"
#include "server/methods/rejected.hpp"

namespace shared_tensor::server {

namespace {

using json_rpc::Json;

constexpr std::int64_t kMaxTimeoutMs = 24LL * 3600 * 1000;

std::chrono::milliseconds checked_timeout(std::int64_t value, std::string_view name) {
    if (value >= 1 && value <= kMaxTimeoutMs) return std::chrono::milliseconds(value);
    reject(name, "milliseconds from 1 to 86400000", std::to_string(value));
}

std::chrono::milliseconds parse_timeout(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        reject("Request-Timeout", "milliseconds from 1 to 86400000", std::string(1, '"').append(text) + '"');
    return checked_timeout(value, "Request-Timeout");
}

/// Ignores unknown transports, but rejects a requirement that names only unknown ones.
std::vector<tensor::TransportKind> required_transports(std::string_view list) {
    tensor::TransportList requested = tensor::parse_transports(list);
    if (requested.transports.empty() && !requested.unknown.empty()) {
        Json reasons = Json::object();
        for (const std::string& word : requested.unknown)
            reasons[word] = "this server knows no such transport";
        throw Rejected(json_rpc::transport_not_possible(std::move(reasons)));
    }
    return std::move(requested.transports);
}

/// An option that is a text, in a header as in "meta".
struct TextOption {
    const char* header;
    const char* meta;
    void (*set)(CallMeta& result, std::string_view text);
};
constexpr TextOption kTextOptions[] = {
    {"Shared-Tensor-Accept", "accept",
     [](CallMeta& result, std::string_view text) { result.policy.accept = tensor::parse_transports(text).transports; }},
    {"Shared-Tensor-Coding", "coding", [](CallMeta& result, std::string_view text) { result.policy.codings = text; }},
    {"Shared-Tensor-Require", "require",
     [](CallMeta& result, std::string_view text) { result.policy.require = required_transports(text); }},
    {"Idempotency-Key", "idempotency_key",
     [](CallMeta& result, std::string_view text) { result.idempotency_key = text; }},
    {"Shared-Tensor-Session", "session", [](CallMeta& result, std::string_view text) { result.session = text; }},
    {net::kRequestId, "request_id",
     [](CallMeta& result, std::string_view text) {
         if (net::is_request_id(text)) result.request_id = text;
     }},
    {"traceparent", "traceparent",
     [](CallMeta& result, std::string_view text) {
         if (net::is_traceparent(text)) result.traceparent = text;
     }},
};

streams::Window read_window(const Json& window, streams::Window otherwise) {
    const auto count = [&](const char* name, std::size_t usual) -> std::size_t {
        if (!window.is_object() || !window.contains(name)) return usual;
        const Json& number = window[name];
        return number.is_number_unsigned() ? number.get<std::size_t>() : 0;
    };
    const streams::Window read{count("items", otherwise.items), count("bytes", otherwise.bytes)};
    if (window.is_object() && read.items > 0 && read.bytes > 0) return read;
    throw Rejected(
        json_rpc::invalid_request("meta.stream_window must be an object of \"items\" and \"bytes\", from 1 on"));
}

/// Overrides the defaults in `result` by the options in the "meta" member of a request.
void read_meta(const Json& meta, CallMeta& result) {
    const auto check = [](bool right, const char* name, const char* expected) {
        if (!right) throw Rejected(json_rpc::invalid_request(std::string("meta.") + name + " must be " + expected));
    };
    if (!meta.is_object()) return;
    for (const TextOption& option : kTextOptions) {
        const auto found = meta.find(option.meta);
        if (found == meta.end()) continue;
        check(found->is_string(), option.meta, "a string");
        option.set(result, found->get_ref<const std::string&>());
    }
    if (const auto timeout = meta.find("timeout_ms"); timeout != meta.end()) {
        check(timeout->is_number_integer(), "timeout_ms", "an integer");
        result.timeout = checked_timeout(timeout->get<std::int64_t>(), "meta.timeout_ms");
    }
    if (const auto window = meta.find("stream_window"); window != meta.end())
        result.stream_window = read_window(*window, result.stream_window);
}

}  // namespace

std::string id_text(const std::optional<json_rpc::Json>& id) {
    constexpr std::size_t kMaxBytes = 64;
    if (!id) return {};
    if (id->is_string()) return id->get_ref<const std::string&>().substr(0, kMaxBytes);
    if (id->is_number_unsigned()) return std::to_string(id->get<std::uint64_t>());  // dump() takes ten times as long
    return id->dump();
}

CallDefaults read_headers(const net::Headers& headers) try {
    if (const auto version = headers.find(kProtocolHeader)) {
        const std::string mismatch = protocol_mismatch(*version, "this server", "the client");
        if (!mismatch.empty()) return json_rpc::invalid_request(mismatch);
    }
    CallMeta result;
    if (!net::first_accepted(headers, {codec::kFrameContentType}).empty())
        result.policy.accept = {tensor::TransportKind::body, tensor::TransportKind::base64,
                                tensor::TransportKind::data};
    for (const TextOption& option : kTextOptions) {
        if (const auto text = headers.find(option.header)) option.set(result, *text);
    }
    if (const auto timeout = headers.find("Request-Timeout")) result.timeout = parse_timeout(*timeout);
    return result;
} catch (const Rejected& rejected) {
    return rejected.error;
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

/// The transport `url`: the tensor stays in the server under a lease of its own, and the reader fetches the bytes when
/// it needs them (GET /tensors/LEASE).
class Url final : public tensor::Transport {
public:
    Url(runtime::LeaseTable& leases, runtime::LeaseHolder lease_holder)
        : leases_(&leases), lease_holder_(std::move(lease_holder)) {}

    tensor::TransportKind kind() const override { return tensor::TransportKind::url; }
    /// Device memory is scarce: it is not kept for a client that may never fetch it.
    tensor::Viability fits(const codec::TensorHandle& tensor) const override {
        return {tensor.on_device() ? "the tensor lies in device memory, which is not kept for later" : ""};
    }
    tensor::Imported import(const tensor::Descriptor&, const tensor::Incoming&) const override {
        throw InvalidValue("url", "a tensor that is sent, or {\"$ref\": lease} for one that is here", "a url");
    }
    tensor::Exported export_to(const codec::TensorPointer& tensor, tensor::OutgoingBody&) const override {
        auto granted = leases_->grant(lease_holder_, tensor::name_of(tensor::TransportKind::url), tensor->bytes(),
                                      {tensor, [](bool) {}});  // its readers get copies, and map no memory
        if (auto* rejected = std::get_if<runtime::LeaseTable::Rejected>(&granted))
            throw tensor::CannotLend(std::move(rejected->reason));
        tensor::Exported exported;
        exported.lent.lease = std::move(std::get<std::string>(granted));
        exported.content.append("\"").append(kTensorPrefix).append(exported.lent.lease).append("\"");
        return exported;
    }

private:
    runtime::LeaseTable* const leases_;
    const runtime::LeaseHolder lease_holder_;
};

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

const tensor::Transports& ReplyContext::transports() const { return with_url ? *with_url : transports_of(client); }

namespace {

void enter_session(Services& all, const Principal& principal, ReplyContext& reply_context) {
    const std::string& token = reply_context.meta.session;
    if (token.empty()) return;
    const auto session = all.sessions.touch(token, principal.name);
    if (!session) throw Rejected(json_rpc::unknown_or_expired("session", all.epoch));
    if (session->keeps_state) reply_context.state_session = token;
    if (session->channel == 0) return;
    reply_context.client = all.local.find(session->channel);
    if (reply_context.client == nullptr)  // the channel was closed, and the session is about to end
        throw Rejected(json_rpc::unknown_or_expired("session", all.epoch));
    reply_context.memory = reply_context.client->watch_memory();
}

/// Offers `url` only to clients that ask for it: others would not know that they must fetch the tensor.
void offer_url(Services& all, const Principal& principal, ReplyContext& reply_context) {
    const tensor::ExportPolicy& policy = reply_context.meta.policy;
    if (!has_url(policy.require.empty() ? policy.accept : policy.require)) return;
    runtime::LeaseHolder lease_holder{principal.name, url_lease_holder(principal.name, reply_context.meta.session), 0,
                                      false};
    reply_context.url = std::make_unique<const Url>(all.leases, std::move(lease_holder));
    reply_context.with_url.emplace(transports_of(reply_context.client).with(*reply_context.url));
}

}  // namespace

std::string url_lease_holder(std::string_view principal, std::string_view session) {
    return std::string("@").append(session.empty() ? principal : session);
}

ReplyContext find_context(Services& all, const Principal& principal, const CallMeta& defaults, const Json& meta) {
    ReplyContext reply_context;
    reply_context.meta = defaults;
    read_meta(meta, reply_context.meta);
    enter_session(all, principal, reply_context);
    offer_url(all, principal, reply_context);
    tensor::ExportPolicy& policy = reply_context.meta.policy;
    policy.most_data_elements = all.options.replies.max_data_elements;
    if (accepts(policy.codings, Coding::zstd)) policy.compression = all.compression.for_tensors();
    begin_span(all, reply_context.meta);
    return reply_context;
}

void begin_span(const Services& all, CallMeta& meta) {
    if (all.tracer == nullptr) return;
    OpenSpan open = all.tracer->begin(meta.traceparent);
    meta.traceparent = std::move(open.traceparent);
    meta.parent_span = std::move(open.parent);
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

namespace {

/// Subtracts about the bytes of the JSON, as text or in memory. Stops at 0.
void subtract(const Json& json, std::size_t& left) {
    constexpr std::size_t kEach = 16;
    const auto* const text = json.get_ptr<const std::string*>();
    left -= std::min(left, kEach + (text != nullptr ? text->size() : 0));
    if (left == 0 || !json.is_structured()) return;
    if (const auto* const members = json.get_ptr<const Json::object_t*>()) {
        for (const auto& [key, member] : *members)
            left -= std::min(left, key.size());
    }
    for (const Json& one : json) {
        if (left == 0) return;
        subtract(one, left);
    }
}

}  // namespace

MessageReferences::MessageReferences(Services& all, const Principal& principal)
    : all_(&all), principal_(&principal), bytes_left_(all.options.replies.max_json_bytes) {}

std::shared_ptr<const codec::Value> MessageReferences::value(const Json& name) {
    auto found = find(name);
    subtract(found->json, bytes_left_);
    if (bytes_left_ > 0) return found;
    throw Unresolved(json_rpc::response_too_large(
        all_->options.replies.max_json_bytes,
        "what the references of this message stand for is larger: pass tensors, or raise the daemon's "
        "--max-reply-json-bytes"));
}

std::shared_ptr<const codec::Value> MessageReferences::find(const Json& name) const {
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
    if (named == nullptr) throw Unresolved(unknown_or_expired("tensor", all_->epoch, *text));
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
