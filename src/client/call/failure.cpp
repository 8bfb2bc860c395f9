#include "client/call/failure.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/system/fork.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

namespace {

using json_rpc::Json;

std::string text_of(const Json& data, const char* member) {
    if (!data.is_object()) return {};
    const auto found = data.find(member);
    if (found == data.end() || found->is_null()) return {};
    if (found->is_string()) return found->get<std::string>();
    std::string text;
    json_rpc::print_json(*found, text);
    return text;
}

std::string wrong_parameter(const Json& data) {
    const std::string parameter = text_of(data, "parameter");
    if (parameter.empty()) return {};
    return "parameter " + parameter + ": expected " + text_of(data, "expected") + ", got " + text_of(data, "got");
}

std::string thrown(const Json& data) {
    const std::string type = text_of(data, "type");
    const std::string message = text_of(data, "message");
    return type.empty() || message.empty() ? type + message : type + ": " + message;
}

std::string forgotten(const Json& data) {
    const std::string kind = text_of(data, "kind");
    const std::string name = text_of(data, "name"), version = text_of(data, "version");
    return (kind.empty() ? "it" : "the " + kind) + (name.empty() ? "" : " \"" + name + '"') +
           " does not exist, belongs to another client, has expired, or the server was restarted" +
           (version.empty() ? "" : "; the version now is " + version);
}

/// The cause of an error, from its data, for the text of the exception.
std::string cause(const json_rpc::Error& error) {
    const Json& data = error.data;
    std::string text;
    switch (static_cast<ErrorCode>(error.code)) {
        case ErrorCode::invalid_params: text = wrong_parameter(data); break;
        case ErrorCode::function_failed: text = thrown(data); break;
        case ErrorCode::busy:
            text = text_of(data, "detail").empty() ? "its queue is full; come back in " : "come back in ";
            text += text_of(data, "retry_after_ms") + " ms";
            break;
        case ErrorCode::unknown_or_expired: text = forgotten(data); break;
        case ErrorCode::transport_not_possible: text = text_of(data, "reasons"); break;
        case ErrorCode::input_failed:
            text = "item " + text_of(data, "item") + " of the batch failed, which this one needs";
            break;
        default: break;
    }
    const std::string detail = text_of(data, "detail");
    if (!text.empty() && !detail.empty()) text += "; ";
    return text + detail;
}

std::string text_for_people(const json_rpc::Error& error, std::string_view method) {
    std::string text(method);
    if (!text.empty()) text += ": ";
    text += error.message;
    if (const std::string why = cause(error); !why.empty()) text += ": " + why;
    return text;
}

std::string data_text(const Json& data) {
    std::string text;
    if (!data.is_null()) json_rpc::print_json(data, text);
    return text;
}

ErrorDetails details_in(const Json& data) {
    ErrorDetails details;
    if (!data.is_object()) return details;
    details.parameter = json_rpc::text_member(data, "parameter");
    details.got = json_rpc::text_member(data, "got");
    details.kind = json_rpc::text_member(data, "kind");
    if (const auto began = data.find("may_have_run"); began != data.end()) details.may_have_run = *began == true;
    constexpr std::uint64_t kLongest = 60'000;
    if (const auto hint = data.find("retry_after_ms"); hint != data.end() && hint->is_number_unsigned())
        details.retry_after = std::chrono::milliseconds(std::min(hint->get<std::uint64_t>(), kLongest));
    return details;
}

/// An exception class of the public header, with the details from the error's data.
template <class Base>
class ServerError final : public Base, public ErrorDetails {
public:
    template <class... More>
    ServerError(const json_rpc::Error& error, std::string_view method, More... more)
        : Base(error.code, error.message, data_text(error.data), text_for_people(error, method), more...),
          ErrorDetails(details_in(error.data)) {}
};

std::string prefix(std::string_view method) { return method.empty() ? std::string() : std::string(method) + ": "; }

std::string advice(const net::TransportError& error) {
    using Kind = net::TransportError::Kind;
    switch (error.kind) {
        case Kind::connect: return "; is shared-tensor-server running there?";
        case Kind::broken:
            return error.sent ? "; the call may have run: repeat it only if that does no harm" : "; nothing was sent";
        case Kind::protocol: return "; is that a shared-tensor-server?";
        case Kind::too_large:
        case Kind::untrusted:
        case Kind::cancelled:
        case Kind::timeout: break;
    }
    return {};
}

}  // namespace

const ErrorDetails& details_of(const RpcError& error) {
    static const ErrorDetails kNone;
    const auto* details = dynamic_cast<const ErrorDetails*>(&error);
    return details != nullptr ? *details : kNone;
}

void throw_error(const json_rpc::Error& error, std::string_view method) {
    switch (static_cast<ErrorCode>(error.code)) {
        case ErrorCode::method_not_found: throw ServerError<MethodNotFound>(error, method);
        case ErrorCode::invalid_params: throw ServerError<InvalidParams>(error, method);
        case ErrorCode::function_failed: throw ServerError<FunctionFailed>(error, method);
        case ErrorCode::busy: throw ServerError<ServerBusy>(error, method);
        case ErrorCode::deadline_exceeded: throw ServerError<DeadlineExceeded>(error, method);
        case ErrorCode::cancelled: throw ServerError<Cancelled>(error, method);
        case ErrorCode::unknown_or_expired: throw ServerError<UnknownOrExpired>(error, method);
        case ErrorCode::transport_not_possible: throw ServerError<TransportNotPossible>(error, method);
        case ErrorCode::not_authorised: throw ServerError<NotAuthorised>(error, method);
        case ErrorCode::out_of_memory: throw ServerError<ServerOutOfMemory>(error, method);
        case ErrorCode::shutting_down:
            throw ServerError<ShuttingDown>(error, method, details_in(error.data).may_have_run);
        case ErrorCode::input_failed: throw ServerError<InputFailed>(error, method);
        case ErrorCode::outcome_unknown: throw ServerError<OutcomeUnknown>(error, method);
        default: throw ServerError<RpcError>(error, method);
    }
}

void throw_failure(const net::TransportError& error, std::string_view method, std::string_view url) {
    using Kind = net::TransportError::Kind;
    if (error.kind == Kind::timeout) throw_late(method, url);
    if (error.kind == Kind::cancelled) throw_cancelled(method.empty() ? url : method, error.sent);
    if (error.kind == Kind::too_large) {
        throw RpcError(
            static_cast<int>(ErrorCode::response_too_large), "Response too large", {},
            prefix(method) + error.what() + "; ask for less at a time, or raise ClientOptions::max_answer_bytes");
    }
    if (error.kind == Kind::untrusted) {
        throw NotAuthorised(
            static_cast<int>(ErrorCode::not_authorised), "Not authorised", {},
            prefix(method) + error.what() +
                "; name the authority that signed it (ClientOptions::tls.authorities, SHARED_TENSOR_CA)");
    }
    const std::string text = prefix(method) + std::string(url) + ": " + error.what() + advice(error);
    if (error.kind == Kind::protocol) throw ProtocolFailure(text, error.sent);
    throw TransportFailure(text, error.sent);
}

void throw_rejection(const net::ClientResponse& response, std::string_view method, std::string_view who,
                     bool may_have_run) {
    auto parsed = json_rpc::parse_responses(response.text());
    if (const auto* answers = std::get_if<std::vector<json_rpc::Response>>(&parsed)) {
        if (answers->size() == 1 && answers->front().error() != nullptr) throw_error(*answers->front().error(), method);
    }
    throw_foreign(who, response.status, "without a reason", may_have_run);
}

void throw_foreign(std::string_view who, int status, const std::string& why, bool may_have_run) {
    const std::string text = std::string(who) + " answered HTTP " + std::to_string(status);
    const bool is_gateway = status == 502 || status == 503 || status == 504;
    if (is_gateway)
        throw TransportFailure(text + ": a proxy on the way could not reach the server, or got no answer from it",
                               may_have_run);
    throw ProtocolFailure(text + ", " + why + "; is that a shared-tensor-server?", may_have_run);
}

void throw_cancelled(std::string_view what, bool may_have_run) {
    throw Cancelled(static_cast<int>(ErrorCode::cancelled), "Cancelled", {},
                    prefix(what) + "cancelled by its caller (CallOptions::stop); " +
                        (may_have_run ? "the call may have run" : "nothing was sent"),
                    may_have_run);
}

void check_stop(const CallOptions& options, std::string_view method) {
    if (options.stop.stop_requested()) throw_cancelled(method, false);
}

void throw_late(std::string_view method, std::string_view url) {
    throw DeadlineExceeded(static_cast<int>(ErrorCode::deadline_exceeded), "Deadline exceeded", {},
                           prefix(method) + "no answer from " + std::string(url) +
                               " in time: give it longer (CallOptions::timeout), or submit it as a task");
}

void throw_of_parent(std::string_view what, std::string_view instead) {
    std::string text(what);
    throw TransportFailure(text.append(" belongs to the process that this one was forked from: ").append(instead),
                           false);
}

bool is_safe_to_repeat(const RpcError& error, const CallOptions& options) {
    // A server that shuts down is often back soon.
    const bool is_rejection = error.is(ErrorCode::busy) || error.is(ErrorCode::shutting_down);
    if (!is_rejection && dynamic_cast<const TransportFailure*>(&error) == nullptr) return false;
    return !may_have_run(error) || options.idempotent || !options.idempotency_key.empty();
}

bool may_have_run(const RpcError& error) {
    const auto* failure = dynamic_cast<const TransportFailure*>(&error);
    return failure != nullptr ? failure->may_have_run() : details_of(error).may_have_run;
}

bool is_about_session(const json_rpc::Error& error) {
    return error.is(json_rpc::ErrorCode::unknown_or_expired) && text_of(error.data, "kind") == "session";
}

}  // namespace shared_tensor::client

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;

double random_fraction() {
    thread_local std::minstd_rand generator{std::random_device{}()};
    thread_local ProcessMark process;
    if (!process.is_here()) {  // otherwise all forked children would wait for the same times
        generator.seed(std::random_device{}());
        process = ProcessMark();
    }
    return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

milliseconds jittered(const Backoff& backoff, int number) {
    constexpr double kLongest = 1e15;  // milliseconds: more would overflow
    const double grown = static_cast<double>(backoff.initial.count()) * std::pow(backoff.factor, number - 1);
    const double bound = std::min({grown, static_cast<double>(backoff.longest.count()), kLongest});
    const double fraction = backoff.random ? std::clamp(backoff.random(), 0.0, 1.0) : random_fraction();
    return milliseconds(static_cast<milliseconds::rep>(std::llround(bound * fraction)));
}

void require(bool holds, const char* text) {
    if (!holds) throw std::invalid_argument(text);
}

}  // namespace

RetryStrategy exponential_backoff(Backoff backoff) {
    require(backoff.initial.count() >= 0 && backoff.longest.count() >= 0, "Backoff: delays can't be negative");
    require(backoff.factor >= 1.0, "Backoff: factor must be at least 1");
    return [backoff = std::move(backoff)](const FailedTry& failed) -> std::optional<milliseconds> {
        if (failed.number >= backoff.tries) return std::nullopt;
        return jittered(backoff, failed.number);
    };
}

RetryStrategy fixed_delay(milliseconds delay, int tries) {
    require(delay.count() >= 0, "fixed_delay: the delay can't be negative");
    return [delay, tries](const FailedTry& failed) -> std::optional<milliseconds> {
        if (failed.number >= tries) return std::nullopt;
        return delay;
    };
}

RetryStrategy no_retry() {
    return [](const FailedTry&) -> std::optional<milliseconds> { return std::nullopt; };
}

}  // namespace shared_tensor
