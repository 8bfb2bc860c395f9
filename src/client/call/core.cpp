#include "client/call/core.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/bytes/ids.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/log/current_call.hpp"
#include "base/log/log.hpp"
#include "client/call/failure.hpp"
#include "client/local/shared_memory.hpp"
#include "local/channel/channel.hpp"
#include "net/message/fields.hpp"
#include "net/message/text.hpp"
#include "net/web_socket/web_socket.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/version.hpp"

namespace shared_tensor::client {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestTimeout{std::chrono::hours(24)};  // servers reject longer timeouts
constexpr milliseconds kLongestPing{5'000};
constexpr milliseconds kToRead{1'000};
constexpr milliseconds kStartPause{50};  // between tries as long as the server was never reached

}  // namespace

void wait_in_steps(SteadyTime deadline, milliseconds longest, const std::function<bool(milliseconds step)>& ask) {
    bool done = false;
    while (!done) {
        const auto rest = std::chrono::ceil<milliseconds>(deadline - real_clock().now());
        done = ask(std::clamp(rest, milliseconds(0), longest)) || real_clock().now() >= deadline;
    }
}

std::string_view trace_of(const CallOptions& options) {
    const std::string& given = options.traceparent;
    if (given.empty()) return current_call != nullptr ? current_call->traceparent : std::string_view();
    if (net::is_traceparent(given)) return given;
    throw std::invalid_argument(
        "CallOptions::traceparent must be a traceparent of W3C Trace Context, version 00, such "
        "as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
}

CallOptions with_trace(CallOptions options) {
    options.traceparent = std::string(trace_of(options));
    return options;
}

void add_trace(net::Headers& headers, const CallOptions& options) {
    const std::string_view trace = trace_of(options);
    if (!trace.empty()) headers.add("traceparent", std::string(trace));
}

Core::Core(ClientOptions options, Dependencies dependencies)
    : options_(completed(std::move(options))),
      compression_(parse_compression(options_.compression.codings, options_.compression.level)),
      anew_(dependencies.anew) {
    local_.get([&] { return make_local(std::move(dependencies)); });
    headers_.add("Accept", std::string(codec::kFrameContentType) + ", application/json");
    if (!options_.token.empty()) headers_.add("Authorization", "Bearer " + options_.token);
}

std::unique_ptr<Core::Local> Core::make_local(Dependencies dependencies) const {
    auto made = std::make_unique<Local>(std::move(dependencies), options_.retry_budget);
    if (const TraceOptions& traces = options_.traces; !traces.endpoint.empty()) {
        const std::string& service = traces.service_name;
        made->tracer = std::make_unique<tracing::Tracer>(traces, service.empty() ? "shared-tensor-client" : service);
    }
    if (shut_down_.load()) {
        made->shut_down.with([](bool& down) { down = true; });
        made->no_more_waits.request_stop();
        made->dependencies.sender->shutdown();
    }
    return made;
}

Outgoing Core::compose(Outgoing::Form form, std::size_t calls, const CallOptions& options) {
    return {form, here().next_id.fetch_add(calls, std::memory_order_relaxed), ports(), required(options)};
}

std::string Core::required(const CallOptions& options) const {
    const bool may_name_memory =
        options.session.empty() || ports().session().empty() || ports().may_name_memory(options.session);
    return options.require.empty() && !may_name_memory ? "body" : options.require;
}

Outgoing Core::request(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    Outgoing request = compose(Outgoing::Form::single, 1, options);
    request.call(method, arguments);
    request.finish();
    return request;
}

local::WaitLimit Core::wait_limit(SteadyTime deadline, const std::stop_token& stop) const {
    return {deadline, stop, here().no_more_waits.get_token()};
}

local::WaitLimit Core::wait_limit(const CallOptions& options) const {
    return wait_limit(times_of(options).deadline, options.stop);
}

void Core::read_within(SteadyTime deadline, const CallOptions& options, std::string_view method,
                       const std::function<void()>& read) const {
    // The answer came in time, so that its memory may be asked for even at the deadline.
    const SteadyTime until = std::max(deadline, later(clock().now(), kToRead));
    const local::WaitLimit limit = wait_limit(until, options.stop);
    try {
        read();
    } catch (const TensorExpired&) {
        if (options.stop.stop_requested()) throw_cancelled(method, true);
        if (clock().now() >= until) throw_late(method, url());
        throw;
    }
}

Incoming Core::send_within(Times times, const Outgoing& request, const CallOptions& options, Receipt* receipt) {
    const local::WaitLimit limit = wait_limit(times.deadline, options.stop);
    if (receipt != nullptr) {
        *receipt = {};
        receipt->request_id = name_of(request);
    }
    const AtEnd timed([&] {
        if (receipt != nullptr) receipt->total = clock().now() - times.start;
    });
    tracing::Tracer* const tracer = here().tracer.get();
    if (tracer == nullptr) return send_tries(request, options, times, receipt);
    const OpenSpan open = tracer->begin(trace_of(options));
    const std::string name = name_of(request);
    std::string failure;
    const AtEnd ended([&] {
        const log::Field attributes[] = {{"rpc.system", std::string_view("jsonrpc")},
                                         {"rpc.jsonrpc.version", std::string_view("2.0")},
                                         {"rpc.method", request.method()},
                                         {"shared_tensor.request_id", name}};
        tracer->end({Span::Kind::client, request.method(), open.traceparent, open.parent, clock().now() - times.start,
                     failure, attributes});
    });
    CallOptions traced = options;
    traced.traceparent = open.traceparent;
    try {
        return send_tries(request, traced, times, receipt);
    } catch (const RpcError& error) {
        failure = std::to_string(error.code());
        throw;
    }
}

Incoming Core::send_tries(const Outgoing& request, const CallOptions& options, Times& times, Receipt* receipt) {
    const auto send_as = [&](const Outgoing& form) {
        return retried(options, times, [&](int&) { return send_once(form, options, times, receipt); });
    };
    return counted(times.start, [&] {
        std::optional<json_rpc::Error> gone;
        try {
            return send_as(request);
        } catch (const InvalidParams& error) {  // nothing ran: the server could not open a tensor
            if (!request.has_tensors() || !uses_another_transport(error, request)) throw;
        } catch (const SessionRejected& rejected) {  // the request names memory of a session that has ended
            gone = rejected.error;
            if (!request.has_tensors()) throw_error(*gone, request.method());
        }
        try {
            return send_as(request.again());
        } catch (const SessionRejected& rejected) {
            if (!gone) gone = rejected.error;
        } catch (const TransportNotPossible&) {  // without new memory, `require` may forbid all transports
            if (!gone) throw;
        }
        throw_error(*gone, request.method());
    });
}

/// The name of a request in the server's log. All tries of a request have the same.
std::string Core::name_of(const Outgoing& request) const {
    return here().name + '-' + std::to_string(request.first_id());
}

/// A request that names memory needs the session of that memory, even if the client has a new session by now.
std::string Core::session_for(const Outgoing& request) const {
    std::string named = request.memory();
    return named.empty() ? ports().session() : named;
}

/// Returns when to repeat a failed try. If it must not be repeated, throws `error`, the exception that is handled now.
SteadyTime Core::next_try(const RpcError& error, const CallOptions& options, Times& times, int& tries) {
    const bool made_progress = tries == 0;
    tries = std::max(tries, 1);
    const milliseconds asked =
        times.of_transfer && error.is(ErrorCode::busy) ? details_of(error).retry_after : milliseconds(0);
    std::optional<milliseconds> pause;
    if (asked.count() > 0) {
        pause = asked + milliseconds(here().next_id.fetch_add(1) % 16);
    } else if (made_progress) {
        if (is_safe_to_repeat(error, options)) pause = milliseconds(0);
    } else {
        pause = is_start(error, times) ? kStartPause : pause_after(error, options, tries++);
    }
    const SteadyTime next = later(clock().now(), pause.value_or(milliseconds(0)));
    const bool began = may_have_run(error);
    if (!pause || next >= times.deadline || is_shut_down()) {
        const bool is_failure = dynamic_cast<const TransportFailure*>(&error) != nullptr;
        if (!is_failure || began || !times.may_have_run) throw;
        throw TransportFailure(std::string(error.what()) + " in this try, but an earlier one may have run", true);
    }
    times.may_have_run |= !times.of_transfer && began;
    return made_progress && asked.count() == 0 ? kAtOnce : next;
}

Core::Times Core::times_of(const CallOptions& options) const {
    const SteadyTime start = clock().now();
    return {start, later(start, options.timeout.value_or(options_.answer_limit)),
            later(start, options_.wait_for_server)};
}

/// True if the server was never reached, and the options allow more time for its start.
bool Core::is_start(const RpcError& error, const Times& times) const {
    const auto* failure = dynamic_cast<const TransportFailure*>(&error);
    return failure != nullptr && !failure->may_have_run() && !here().reached.load(std::memory_order_relaxed) &&
           clock().now() < times.start_of_server;
}

std::optional<milliseconds> Core::pause_after(const RpcError& error, const CallOptions& options, int tries) {
    if (!options_.retry || !is_safe_to_repeat(error, options)) return std::nullopt;
    const auto pause = options_.retry(FailedTry{tries, error});
    if (!pause || !here().budget.spend()) return std::nullopt;
    return *pause + details_of(error).retry_after;
}

Incoming Core::send_once(const Outgoing& request, const CallOptions& options, const Times& times, Receipt* receipt) {
    check_stop(options, request.method());
    const SteadyTime now = clock().now();
    if (now >= times.deadline) throw_late(request.method(), url());
    const std::string shared = session_for(request);
    if (receipt != nullptr) ++receipt->tries;
    net::ClientResponse response;
    try {
        response = exchange(try_of(request, options, shared, now, times));
    } catch (const net::TransportError& error) {
        throw_failure(error, request.method(), url());
    }
    request.answered();
    if (shared.empty()) note_coding(response);
    note_times(response.headers, now);
    if (receipt != nullptr) note_answer(*receipt, response.headers, request.copied());
    const bool own_session = options.session.empty() && !shared.empty();
    try {
        const CallOptions* const fetch = request.method() == kFetch ? nullptr : &options;
        return Incoming::read(response, request, ports(), url(), {shared, own_session, weak_from_this(), fetch});
    } catch (const SessionRejected&) {  // a request that names memory of the session cannot be sent again unchanged
        if (request.memory().empty()) forget_session(shared);
        ports().session_rejected(shared);
        throw;
    }
}

net::ClientResponse Core::exchange(const net::ClientRequest& request) const {
    Local& local = here();
    try {
        net::ClientResponse response = local.dependencies.sender->send(request);
        if (!local.reached.load(std::memory_order_relaxed)) local.reached.store(true, std::memory_order_relaxed);
        return response;
    } catch (const net::TransportError& error) {
        if (error.sent) local.reached.store(true, std::memory_order_relaxed);
        throw;
    }
}

void Core::forget_session(const std::string& session) const {
    ports().session_rejected(session);
    throw TransportFailure(url() + " does not know this client's memory any more: it was started anew", false);
}

/// Tensors are compressed only after the server has said that it supports zstd.
void Core::note_coding(const net::ClientResponse& response) {
    if (!compression_ || here().coding_known.load(std::memory_order_relaxed)) return;
    const auto known = response.headers.find("Shared-Tensor-Coding");
    if (!known && response.status != 200 && response.status != 204) return;  // a rejection, or from a proxy
    ports().compress(accepts(known.value_or(""), Coding::zstd) ? compression_ : Compression());
    here().coding_known.store(true, std::memory_order_relaxed);
}

void Core::agree_on_coding(const CallOptions& of_call) {
    const bool is_far = ports().session().empty();
    if (!is_far || !compression_ || here().coding_known.load(std::memory_order_relaxed)) return;
    const auto timeout = std::min(of_call.timeout.value_or(kLongestPing), kLongestPing);
    try {
        notify("server.ping", detail::ArgumentsOf<>(),
               CallOptions{.timeout = timeout, .stop = of_call.stop, .idempotent = true});
    } catch (const RpcError& error) {
        log::debug("nothing is compressed on the way to the server: ", error.what());
    }
}

net::ClientRequest Core::try_of(const Outgoing& request, const CallOptions& options, const std::string& shared,
                                SteadyTime now, const Times& times) const {
    net::ClientRequest http;
    http.headers = headers_of(options, shared);
    http.headers.add(net::kRequestId, name_of(request));
    http.content_type = request.content_type();
    http.parts = request.body();
    http.deadline = times.deadline;
    http.stop = options.stop;
    if (options.timeout) {
        const auto rest = std::chrono::ceil<milliseconds>(times.deadline - now);
        http.headers.add("Request-Timeout", std::to_string(std::min(rest, kLongestTimeout).count()));
    }
    if (!options.idempotency_key.empty() && !request.is_batch()) {
        http.headers.add("Idempotency-Key", options.idempotency_key);
    }
    return http;
}

net::Headers Core::headers_of(const CallOptions& options, const std::string& shared) const {
    net::Headers headers = headers_;
    headers.add(kProtocolHeader, std::string(kNewestProtocol));
    std::string accept = options_.accept;
    if (!shared.empty()) {
        const auto memory = ports().memory();
        accept = (memory != nullptr ? memory->accepted() : "shm") + ", " + accept;
    }
    headers.add("Shared-Tensor-Accept", std::move(accept));
    if (shared.empty() && compression_) headers.add("Shared-Tensor-Coding", "zstd");
    add_trace(headers, options);
    if (!options.require.empty()) headers.add("Shared-Tensor-Require", options.require);
    if (const std::string& session = options.session.empty() ? shared : options.session; !session.empty())
        headers.add("Shared-Tensor-Session", session);
    return headers;
}

std::shared_ptr<net::WebSocket> Core::connect_web_socket(std::string_view method, const CallOptions& options,
                                                         const std::string& session, SteadyTime deadline) {
    net::ClientRequest request;
    request.path = "/ws";
    request.headers = headers_of(options, session);
    request.deadline = deadline;
    request.stop = options.stop;
    try {
        auto connected = here().dependencies.sender->connect_web_socket(std::move(request));
        here().reached.store(true, std::memory_order_relaxed);
        if (auto* socket = std::get_if<std::shared_ptr<net::WebSocket>>(&connected)) {
            here().sockets.with([&](auto& all) {
                std::erase_if(all, [](const auto& one) { return one.expired(); });
                all.push_back(*socket);
            });
            if (is_shut_down()) (*socket)->abort();
            return std::move(*socket);
        }
        throw_rejection(std::get<net::ClientResponse>(connected), method, std::string(method) + ": " + url(), false);
    } catch (const net::TransportError& error) {
        throw_failure({error.kind, false, error.what()}, method, url());  // not sent: a handshake has no effect
    }
}

std::shared_ptr<Objects> Core::objects() {
    return here().objects.with([&](std::weak_ptr<Objects>& known) {
        auto objects = known.lock();
        if (objects == nullptr) {
            objects = std::make_shared<Objects>([self = shared_from_this()](const auto& ids) { self->release(ids); });
            known = objects;
        }
        return objects;
    });
}

void Core::release(const std::vector<std::string>& ids) {
    notify("object.release", detail::ArgumentsOf(named("ids", ids)),
           CallOptions{.timeout = std::chrono::seconds(5), .idempotent = true});
}

void Core::sleep_until(SteadyTime time, const std::stop_token& stop) {
    Local& local = here();
    if (local.dependencies.sleep_until) return local.dependencies.sleep_until(time);
    const std::stop_callback wakes(stop, [&local] { local.shut_down.wake_all(); });
    local.shut_down.lock().wait_until(time, [&](bool down) { return down || stop.stop_requested(); });
}

void Core::call(std::string_view method, const CallArguments& arguments, detail::ResultSlot& slot,
                const CallOptions& options, Receipt* receipt) {
    if (receipt != nullptr) *receipt = {};
    check_stop(options, method);
    const Times times = times_of(options);
    const auto answer = [&] {
        const local::WaitLimit limit = wait_limit(times.deadline, options.stop);
        return send_within(times, request(method, arguments, options), options, receipt);
    };
    const Incoming answered = answer();
    read_within(times.deadline, options, method, [&] { answered.result(slot); });
}

/// True if the server could not open memory that an argument named, and the request will not name that memory when it
/// is sent again.
bool Core::uses_another_transport(const InvalidParams& error, const Outgoing& request) const {
    const ErrorDetails& details = details_of(error);
    const std::string &parameter = details.parameter, named = request.memory();
    const bool is_lent = parameter.ends_with(".shm") || parameter.find(".shm.") != std::string::npos ||
                         parameter.ends_with(".cuda_ipc") || parameter.find(".cuda_ipc.") != std::string::npos;
    if (is_lent && !named.empty() && named != ports().session()) return true;  // the session has ended meanwhile
    return ports().uses_another_transport(parameter, details.got);
}

void Core::notify(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    check_stop(options, method);
    const Times times = times_of(options);
    const local::WaitLimit limit = wait_limit(times.deadline, options.stop);
    Outgoing request = compose(Outgoing::Form::single, 1, options);
    request.notify(method, arguments);
    request.finish();
    send_within(times, request, options);
}

void Core::shutdown() {
    shut_down_.store(true);
    Local& local = here();
    local.no_more_waits.request_stop();
    local.dependencies.sender->shutdown();  // before the pauses end: a call that goes on then sends nothing more
    for (const auto& weak : local.sockets.with([](const auto& all) { return all; })) {
        if (const auto socket = weak.lock()) socket->abort();
    }
    local.shut_down.with([](bool& down) { down = true; });
    local.shut_down.notify_all();
}

bool Core::is_shut_down() const { return shut_down_.load(); }

}  // namespace shared_tensor::client
