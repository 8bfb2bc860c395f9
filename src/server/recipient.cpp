#include "server/recipient.hpp"

#include <algorithm>
#include <charconv>

#include "codec/frame.hpp"

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
std::optional<Error> require_ways(std::string_view list, std::vector<tensor::Way>& required) {
    const tensor::Wishes wishes = tensor::parse_ways(list);
    if (wishes.ways.empty() && !wishes.unknown.empty()) {
        Json reasons = Json::object();
        for (const std::string& word : wishes.unknown)
            reasons[word] = "this server knows no such transport";
        return json_rpc::transport_not_possible(std::move(reasons));
    }
    required = wishes.ways;
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

CallDefaults read_headers(const http::Headers& headers) {
    CallMeta meta;
    if (const auto accept = headers.find("Shared-Tensor-Accept")) {
        meta.policy.accept = tensor::parse_ways(*accept).ways;
    } else if (const auto types = headers.find("Accept");
               types && types->find(codec::kFrameContentType) != types->npos) {
        meta.policy.accept = {tensor::Way::body, tensor::Way::base64, tensor::Way::data};
    }
    meta.policy.codings = headers.find("Shared-Tensor-Coding").value_or("");
    if (const auto require = headers.find("Shared-Tensor-Require")) {
        if (auto error = require_ways(*require, meta.policy.require)) return std::move(*error);
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
        result.policy.accept = tensor::parse_ways(meta["accept"].get_ref<const std::string&>()).ways;
    if (meta.contains("require")) {
        if (auto error = require_ways(meta["require"].get_ref<const std::string&>(), result.policy.require))
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

codec::Json HandleGrants::describe(const ObjectPointer& object) {
    auto granted = objects_->grant(owner_, object);
    if (auto* refused = std::get_if<service::ObjectTable::Refused>(&granted))
        throw TooManyHandles(std::move(refused->reason));
    granted_.push_back(std::move(std::get<std::string>(granted)));
    // If the session ended while the call ran, its handles were ended before this one was granted. So they are ended
    // once more.
    if (!owner_.session.empty() && !sessions_->is_open(owner_.session)) objects_->session_ended(owner_.session);
    return {{"id", granted_.back()}, {"type", object->type}};
}

void HandleGrants::take_back() {
    objects_->release(granted_, std::nullopt);
    granted_.clear();
}

namespace {

/// The media of a client without a local channel.
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

}  // namespace

std::string Recipient::busy() const {
    const auto& ways = meta.policy.require.empty() ? meta.policy.accept : meta.policy.require;
    const bool only_memory = client != nullptr && !ways.empty() &&
                             std::all_of(ways.begin(), ways.end(), [](auto way) { return way == tensor::Way::shm; });
    return only_memory ? client->busy() : std::string();
}

const tensor::Media& Recipient::media() const { return url != nullptr ? url->media() : media_of(client); }

std::optional<json_rpc::Error> Recipients::find(const Principal& principal, const CallMeta& defaults,
                                                const json_rpc::Json& meta, Recipient& recipient) const {
    recipient.meta = defaults;
    if (auto error = read_meta(meta, recipient.meta)) return error;
    if (!enter_session(principal, recipient)) return json_rpc::unknown_or_expired("session", values_->epoch);
    if (recipient.client != nullptr) recipient.memory = recipient.client->watch_memory();
    offer_url(principal, recipient);
    tensor::ExportPolicy& policy = recipient.meta.policy;
    policy.most_data_elements = values_->most_data_elements;
    if (accepts(policy.codings, Coding::zstd)) policy.compression = values_->compression.for_tensors();
    return std::nullopt;
}

/// Returns false if the session does not exist or is not the caller's.
bool Recipients::enter_session(const Principal& principal, Recipient& recipient) const {
    const std::string& token = recipient.meta.session;
    if (token.empty()) return true;
    const auto session = sessions_->touch(token, principal.name);
    if (!session) return false;
    if (session->keeps_state) recipient.state_session = token;
    if (session->channel == 0) return true;
    recipient.client = local_->find(session->channel);
    return recipient.client != nullptr;  // null: the channel was closed, and the session is about to end
}

/// Offers `url` only to clients that ask for it: others would not know that they must fetch the tensor.
void Recipients::offer_url(const Principal& principal, Recipient& recipient) const {
    const tensor::ExportPolicy& policy = recipient.meta.policy;
    if (!has_url(policy.require.empty() ? policy.accept : policy.require)) return;
    service::Lessee lessee{principal.name, url_lessee(principal.name, recipient.meta.session), 0, false};
    recipient.url = std::make_unique<const UrlMedia>(media_of(recipient.client), values_->leases, std::move(lessee));
}

HandleGrants Recipients::grants(const Principal& principal, const Recipient& recipient) const {
    const auto pid = recipient.client != nullptr ? recipient.client->lessee().pid : 0;
    return {values_->objects, *sessions_, {principal.name, recipient.meta.session, pid}};
}

}  // namespace shared_tensor::server
