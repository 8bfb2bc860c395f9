#include "client/call/incoming.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/log/log.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "client/transfers/transfer.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/codec/json_source.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::client {

namespace {

/// Downloads the elements of a tensor that stayed in the server, and releases its lease. Waits only a short time for
/// the release, because the lease also ends by itself.
std::shared_ptr<PooledBuffer> fetch(Core& core, const ByUrl& there, CallOptions options) {
    options.timeout.reset();  // it limited the call, and the call has been answered
    auto elements = [&] {
        try {
            return download(core, there.url + ".raw", {.connections = core.options().connections}, options).bytes;
        } catch (const Cancelled&) {
            throw_cancelled(there.url, true);  // the call that brought the result has run
        }
    }();
    try {
        options.stop = {};
        options.timeout = std::chrono::seconds(5);
        options.require.clear();
        options.idempotency_key.clear();
        core.notify("lease.release", detail::ArgumentsOf(named("leases", std::vector{there.lease})), options);
    } catch (const RpcError& error) {
        log::debug("the lease of a downloaded tensor could not be released, so it ends after its time limit: ",
                   error.what());
    }
    return elements;
}

/// Requests the tensor of a lease again, by a transport other than the one that failed. The call itself has run, so no
/// failure here may say that it has not.
codec::TensorPointer fetch(Core& core, const NotOpened& lost, const CallOptions& of_call) {
    CallOptions options;
    options.idempotent = true;
    options.timeout = of_call.timeout;
    options.stop = of_call.stop;
    auto possible = tensor::parse_transports(of_call.require.empty() ? "shm, body" : of_call.require).transports;
    std::erase(possible, tensor::TransportKind::cuda_ipc);
    options.require = tensor::join(possible);
    if (options.require.empty())
        throw_error(json_rpc::transport_not_possible({{"cuda_ipc", lost.reason}}), "the result of the call, which ran");
    try {
        return core.send(core.request(kFetch, detail::ArgumentsOf(named("lease", lost.lease))), options).tensor();
    } catch (const UnknownOrExpired& error) {
        throw TensorExpired(error.code(), error.message(), error.data(), error.what());
    } catch (const Cancelled&) {
        throw_cancelled(kFetch, true);
    } catch (const RpcError& error) {
        throw TransportFailure("the result cannot be opened here (" + lost.reason +
                                   "), and no other transport delivered it: " + error.what(),
                               true);
    }
}

}  // namespace

/// The tensors of an answer, and their leases. The answer was parsed as JSON, or it is a single tensor that was not
/// parsed (`whole`), for which every placeholder stands. The real port is made for the first tensor that is read.
class Incoming::Port final : public codec::TensorPort {
public:
    /// `leased`: how many tensors came with a lease.
    Port(const TensorPorts& ports, Surrounding around, std::span<const std::byte> bytes,
         std::shared_ptr<const void> owner, std::size_t leased)
        : ports_(&ports),
          session_(std::move(around.session)),
          bytes_(bytes),
          owner_(std::move(owner)),
          leased_(leased),
          core_(std::move(around.core)) {
        if (leased > 0 && around.fetch != nullptr) fetch_ = *around.fetch;
    }
    Port(const TensorPorts& ports, std::string session, LeasedTensor whole)
        : ports_(&ports), session_(std::move(session)), leased_(1), whole_(std::move(whole)) {}

    /// A lease ends with the tensor that was read under it. So a second read must return the same tensor.
    codec::TensorPointer import(const codec::Json& descriptor) override {
        if (leased_ == 0) return opened_or_fetched(descriptor);
        const codec::Json* const place = whole_ ? nullptr : &descriptor;
        if (const auto known = read_.find(place); known != read_.end()) return known->second;
        return read_.emplace(place, whole_ ? whole_->import() : opened_or_fetched(descriptor)).first->second;
    }
    codec::TensorPointer wrap(const TensorRef& tensor) override { return real().wrap(tensor); }
    void describe(const codec::TensorPointer& tensor, json_rpc::LongText& out) override {
        real().describe(tensor, out);
    }

    bool has_unread() const { return read_.size() < leased_; }
    /// Appends the leases of unread tensors in `result`, which is one of the answer's results, to `leases`.
    void add_unread(const codec::Json& result, std::vector<std::string>& leases) const {
        if (whole_) return leases.push_back(whole_->lease);
        for_each_lease(result, [&](const codec::Json& descriptor, const std::string& lease) {
            if (!read_.contains(&descriptor)) leases.push_back(lease);
        });
    }
    void abandon(const std::vector<std::string>& leases) const { ports_->abandon(leases); }

private:
    codec::TensorPointer opened_or_fetched(const codec::Json& descriptor) {
        const auto core = [this] { return fetch_ ? core_.lock() : nullptr; };
        try {
            return real().import(descriptor);
        } catch (const NotOpened& lost) {
            const std::shared_ptr<Core> client = core();
            if (client == nullptr) throw InvalidValue("cuda_ipc", "memory that can be opened here", lost.reason);
            codec::TensorPointer fetched = fetch(*client, lost, *fetch_);
            abandon({lost.lease});
            return fetched;
        } catch (const ByUrl& there) {
            const std::shared_ptr<Core> client = core();
            if (client == nullptr) throw InvalidValue("url", "a tensor that came with the answer", there.url);
            std::shared_ptr<PooledBuffer> elements = fetch(*client, there, *fetch_);
            const codec::Json here{{"dtype", descriptor.at("dtype")},
                                   {"shape", descriptor.at("shape")},
                                   {"body", {{"offset", 0}, {"size", elements->size()}}}};
            return make(elements->bytes(), elements)->import(here);
        }
    }
    std::unique_ptr<codec::TensorPort> make(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) const {
        return ports_->incoming(bytes, std::move(owner), session_);
    }
    codec::TensorPort& real() {
        if (!real_) real_ = make(bytes_, owner_);
        return *real_;
    }

    const TensorPorts* const ports_;
    const std::string session_;
    const std::span<const std::byte> bytes_{};
    const std::shared_ptr<const void> owner_;
    const std::size_t leased_;
    const std::weak_ptr<Core> core_;
    std::optional<CallOptions> fetch_;  // of the call, if its tensors can be fetched
    const std::optional<LeasedTensor> whole_;
    std::unique_ptr<codec::TensorPort> real_;
    std::unordered_map<const codec::Json*, codec::TensorPointer> read_;  // by their descriptors, which do not move
};

namespace {

/// How many tensors with a lease, and how many handles of objects are in a result.
struct Contents {
    std::size_t leased = 0, handles = 0;
    void add(const json_rpc::Json& result) {
        codec::for_each_marked(result, [this](codec::Marker marker, const codec::Json& place) {
            if (marker == codec::Marker::object) ++handles;
            if (marker == codec::Marker::tensor && lease_of(place) != nullptr) ++leased;
        });
    }
};

bool is_frame(const net::ClientResponse& response) {
    const auto type = response.headers.find("Content-Type");
    return type && type->starts_with(codec::kFrameContentType);
}

/// Splits an answer into JSON and tensors. Returns nothing if its frame is malformed.
std::optional<codec::Frame> split(const net::ClientResponse& response) {
    if (is_frame(response)) return codec::split_frame(response.body->bytes());
    return codec::Frame{response.text(), {}};
}

/// Reads an answer that is a single tensor in shared memory without parsing its JSON, which would take longer than the
/// hand-over. Returns nothing for any other answer.
std::optional<LeasedTensor> whole_tensor(std::string_view json, const Outgoing& request, const TensorPorts& ports,
                                         const std::string& session) {
    constexpr std::string_view kStart = R"({"$tensor":)", kEnd = "}";
    if (request.is_batch() || !request.wants_answer()) return std::nullopt;
    const auto text = json_rpc::result_text(json, request.first_id());
    if (!text || !text->starts_with(kStart) || !text->ends_with(kEnd)) return std::nullopt;
    return ports.leased(text->substr(kStart.size(), text->size() - kStart.size() - kEnd.size()), session);
}

const json_rpc::Json& tensor_placeholder() {
    static const json_rpc::Json kPlaceholder{{"$tensor", nullptr}};
    return kPlaceholder;
}

[[noreturn]] void throw_foreign(std::string_view url, const net::ClientResponse& response, const std::string& why) {
    client::throw_foreign(url, response.status, "and " + why, true);
}

/// True if the server rejected the session, before anything ran. All answers must be that error, because one call of a
/// batch may have its own session. Calls of session.* do not count, because their error may be about a session that
/// they name.
bool nothing_ran(const std::vector<json_rpc::Response>& responses, const Outgoing& request) {
    if (responses.empty() || request.method().starts_with("session.")) return false;
    return std::all_of(responses.begin(), responses.end(), [](const json_rpc::Response& answer) {
        return answer.error() != nullptr && is_about_session(*answer.error());
    });
}

const json_rpc::Error* whole_error(const std::vector<json_rpc::Response>& responses) {
    const bool is_one = responses.size() == 1 && responses.front().id.is_null();
    return is_one ? responses.front().error() : nullptr;
}

}  // namespace

json_rpc::ParseLimits limits_of(std::size_t bytes) {
    json_rpc::ParseLimits limits;
    limits.json.max_depth = 500;
    limits.json.max_bytes = bytes;
    limits.max_batch_items = bytes;
    return limits;
}

std::shared_ptr<const codec::Value> AnsweredObjects::value(const codec::Json&) {
    throw InvalidValue({}, "a result", "a reference to a result");
}

/// A result may be read twice: both reads return the same handle.
ObjectPointer AnsweredObjects::object(const codec::Json& handle) {
    const bool is_handle = handle.is_object() && handle.contains("id") && handle["id"].is_string();
    const auto core = is_handle ? core_.lock() : nullptr;
    if (core == nullptr) throw InvalidValue({}, "the handle of an object", "something else");
    const auto& id = handle["id"].get_ref<const std::string&>();
    for (const ObjectPointer& known : known_) {
        if (known->id == id) return known;
    }
    known_.push_back(core->objects()->adopt(id, json_rpc::text_member(handle, "type")));
    return known_.back();
}

void AnsweredObjects::read_all(const codec::Json& result) {
    codec::for_each_marked(result, [&](codec::Marker marker, const codec::Json& place) {
        if (marker == codec::Marker::object) object(place.begin().value());
    });
}

Incoming::Incoming() = default;
Incoming::Incoming(Incoming&&) noexcept = default;

Incoming::~Incoming() {
    if (port_ == nullptr) return;
    try {
        if (const auto unread = unread_leases(); !unread.empty()) port_->abandon(unread);
        if (objects_->count() < handles_)
            for_each_result([this](const codec::Json& result) { objects_->read_all(result); });
    } catch (const std::exception& error) {
        log::debug("unread tensors or objects could not be released, so they end after their time limit: ",
                   error.what());
    }
}

template <class Use>
void Incoming::for_each_result(Use use) const {
    if (responses_.empty()) return use(raw_result());
    for (const auto& answer : responses_) {
        if (answer.result() != nullptr) use(*answer.result());
    }
}

std::vector<std::string> Incoming::unread_leases() const {
    std::vector<std::string> leases;
    if (port_ == nullptr || !port_->has_unread()) return leases;
    for_each_result([&](const codec::Json& result) { port_->add_unread(result, leases); });
    return leases;
}

Incoming Incoming::read(const net::ClientResponse& response, const Outgoing& request, const TensorPorts& ports,
                        std::string_view url, Surrounding around) {
    Incoming incoming;
    const bool is_empty = !response.body || response.body->size() == 0;
    if (is_empty && !request.wants_answer() && response.status / 100 == 2) return incoming;
    if (is_empty) throw_foreign(url, response, "its body is empty");
    const auto frame = split(response);
    if (!frame) throw_foreign(url, response, "its tensors are cut off");
    incoming.objects_ = std::make_unique<AnsweredObjects>(around.core);
    if (auto whole = whole_tensor(frame->json, request, ports, around.session)) {
        incoming.port_ = std::make_unique<Port>(ports, std::move(around.session), std::move(*whole));
        return incoming;
    }
    auto parsed = json_rpc::parse_responses(frame->json, limits_of(frame->json.size()));
    if (const auto* rejection = std::get_if<std::string>(&parsed)) throw_foreign(url, response, *rejection);
    incoming.responses_ = std::get<std::vector<json_rpc::Response>>(std::move(parsed));
    if (around.own_session && nothing_ran(incoming.responses_, request))
        throw SessionRejected{*incoming.responses_.front().error()};
    if (const auto* error = whole_error(incoming.responses_)) throw_error(*error, request.method());
    Contents contents;
    incoming.for_each_result([&](const json_rpc::Json& result) { contents.add(result); });
    incoming.handles_ = contents.handles;
    incoming.port_ = std::make_unique<Port>(ports, std::move(around), frame->tensors, response.body, contents.leased);
    if (!request.is_batch() && request.wants_answer()) {
        const auto& answer = incoming.responses_.front();
        if (answer.id != request.first_id()) throw_foreign(url, response, "its id is that of another request");
        if (const auto* error = answer.error()) throw_error(*error, request.method());
    }
    return incoming;
}

Incoming Incoming::of_value(std::shared_ptr<const json_rpc::Json> value, std::span<const std::byte> tensors,
                            std::shared_ptr<const void> owner, const TensorPorts& ports, Surrounding around) {
    Incoming incoming;
    incoming.objects_ = std::make_unique<AnsweredObjects>(around.core);
    Contents contents;
    contents.add(*value);
    incoming.handles_ = contents.handles;
    incoming.port_ = std::make_unique<Port>(ports, std::move(around), tensors, std::move(owner), contents.leased);
    incoming.value_ = std::move(value);
    return incoming;
}

void Incoming::result(detail::ResultSlot& slot) const { read_into(raw_result(), slot); }

const json_rpc::Json& Incoming::raw_result() const {
    if (value_ != nullptr) return *value_;
    const json_rpc::Json* result = responses_.empty() ? &tensor_placeholder() : responses_.front().result();
    if (result == nullptr) throw std::logic_error("an error was thrown when it was read: it has no result");
    return *result;
}

codec::TensorPointer Incoming::tensor() const {
    const json_rpc::Json& result = raw_result();
    const auto descriptor = result.is_object() ? result.find("$tensor") : result.end();
    if (descriptor == result.end()) throw ResultMismatch("", "a tensor", result.type_name());
    return port_->import(*descriptor);
}

void Incoming::result(std::uint64_t id, std::string_view method, detail::ResultSlot& slot) const {
    const auto found = std::find_if(responses_.begin(), responses_.end(),
                                    [id](const json_rpc::Response& response) { return response.id == id; });
    if (found == responses_.end()) {
        throw ProtocolFailure(std::string(method) + ": the server's answer to the batch leaves this call out", true);
    }
    if (const auto* error = found->error()) throw_error(*error, method);
    read_into(*found->result(), slot);
}

void Incoming::read_into(const json_rpc::Json& result, detail::ResultSlot& slot) const {
    const codec::JsonSource source(*port_, objects_.get());
    try {
        slot.read(ValueReader(source, codec::JsonSource::node(result)));
    } catch (const InvalidValue& error) {
        throw ResultMismatch(error.path, error.expected, error.got);
    }
}

}  // namespace shared_tensor::client
