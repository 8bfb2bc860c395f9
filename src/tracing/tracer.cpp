#include "tracing/tracer.hpp"

#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "base/bytes/ids.hpp"
#include "net/message/text.hpp"
#include "tracing/otlp.hpp"

namespace shared_tensor::tracing {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostInRequest = 512;
constexpr seconds kEvery{1}, kAnswerTime{10}, kLastSend{2}, kLongestPause{30};
constexpr int kMostTries = 5;

/// True for one of `every` random numbers.
bool is_chosen(std::string_view hex, std::size_t every) {
    std::uint64_t number = 0;
    std::from_chars(hex.data(), hex.data() + hex.size(), number, 16);
    return number % every == 0;
}

net::ClientOptions http_options(const CollectorAddress& collector) {
    net::ClientOptions options;
    options.endpoint = collector.endpoint;
    if (options.endpoint.tls) options.endpoint.tls_client = net::TlsClient::load({});
    options.max_connections = 1;
    options.max_response_bytes = std::size_t{1} << 20;
    return options;
}

std::vector<std::string> reserved(std::size_t size) {
    std::vector<std::string> strings;
    strings.reserve(size);
    return strings;
}

/// The answers after which OTLP lets a client send the same spans again.
bool is_for_later(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

}  // namespace

CollectorAddress CollectorAddress::parse(std::string_view url) try {
    CollectorAddress address;
    const std::size_t host = std::min(url.find("://"), url.size());
    const std::size_t path = url.starts_with("unix:") ? url.size() : std::min(url.find('/', host + 3), url.size());
    if (url.size() > path + 1) address.path = url.substr(path);
    const std::string_view server = url.substr(0, path);
    const std::size_t colon = server.rfind(':');
    if (colon == host || server.find(']', colon) != std::string_view::npos)
        throw std::invalid_argument("\"" + std::string(url) + "\" has no port: OTLP over HTTP mostly has 4318");
    address.endpoint = net::Endpoint::parse(server);
    return address;
} catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("trace-endpoint: ") + error.what() +
                                "; give the address of an OpenTelemetry collector, such as http://127.0.0.1:4318");
}

Tracer::Tracer(const TraceOptions& options, std::string service)
    : max_spans_(options.max_spans),
      every_(std::max<std::size_t>(options.every, 1)),
      service_(std::move(service)),
      collector_(CollectorAddress::parse(options.endpoint)),
      client_(http_options(collector_)),
      taken_(reserved(kMostInRequest)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Tracer::stop() {
    thread_.request_stop();
    waiting_.wake_all();
    waiting_.lock().wait_until(real_clock().now() + kLastSend, [](const Waiting& waiting) { return waiting.ended; });
    client_.shutdown();
    if (thread_.joinable()) thread_.join();
}

OpenSpan Tracer::begin(std::string_view traceparent) {
    if (!traceparent.empty() && !is_recorded(traceparent)) return {std::string(traceparent), {}};
    OpenSpan open;
    if (!traceparent.empty()) {
        open.parent = traceparent.substr(kSpanAt, kSpanSize);
        open.traceparent.append(traceparent.substr(0, kTraceAt + kTraceSize))
            .append(1, '-')
            .append(random_hex(8))
            .append("-01");
        return open;
    }
    const std::string random = random_hex(24);
    const std::string_view trace = std::string_view(random).substr(0, 32), span = std::string_view(random).substr(32);
    open.traceparent.append("00-").append(trace).append(1, '-').append(span);
    open.traceparent.append(is_chosen(span, every_) ? "-01" : "-00");
    return open;
}

void Tracer::end(const Span& span) noexcept try {
    if (!is_recorded(span.traceparent)) return;
    std::string printed = otlp_span(span, real_clock().wall_time());
    const std::size_t count = waiting_.with([&](Waiting& waiting) -> std::size_t {
        if (waiting.ended || waiting.spans.size() >= max_spans_) return 0;
        waiting.spans.push_back(std::move(printed));
        return waiting.spans.size();
    });
    if (count == 0) dropped_.fetch_add(1, std::memory_order_relaxed);
    if (count == kMostInRequest) waiting_.notify_all();
} catch (const std::exception&) {  // no memory
    dropped_.fetch_add(1, std::memory_order_relaxed);
}

void Tracer::run(const std::stop_token& stop) noexcept {
    ::pthread_setname_np(::pthread_self(), "st-trace");
    for (;;) {
        take_spans(stop);
        if (!taken_.empty()) {
            send(stop);
        } else if (stop.stop_requested()) {
            break;
        }
    }
    waiting_.with([](Waiting& waiting) { waiting.ended = true; });
    waiting_.notify_all();
}

/// Waits until many spans wait, or the time for the next request has come. Takes the oldest.
void Tracer::take_spans(const std::stop_token& stop) {
    taken_.clear();
    auto waiting = waiting_.lock();
    waiting.wait_until(real_clock().now() + kEvery,
                       [&](const Waiting& now) { return now.spans.size() >= kMostInRequest || stop.stop_requested(); });
    Spans& spans = waiting->spans;
    const auto end = spans.begin() + static_cast<std::ptrdiff_t>(std::min(spans.size(), kMostInRequest));
    std::move(spans.begin(), end, std::back_inserter(taken_));
    spans.erase(spans.begin(), end);
}

/// After a stop, no try follows a failed one.
void Tracer::send(const std::stop_token& stop) try {
    const std::string request = otlp_request(taken_, service_);
    milliseconds pause = kEvery;
    for (int tries = 1;; ++tries, pause *= 2) {
        const Reply reply = post(request, taken_.size());
        if (reply.answer == Answer::taken) return;
        if (reply.answer == Answer::never || tries == kMostTries || stop.stop_requested())
            return drop(taken_.size(), reply.reason);
        waiting_.lock().wait_until(real_clock().now() + std::max(pause, reply.pause),
                                   [&](const Waiting&) { return stop.stop_requested(); });
    }
} catch (const std::exception& error) {  // no memory
    drop(taken_.size(), error.what());
}

Tracer::Reply Tracer::post(const std::string& request, std::size_t spans) try {
    net::ClientRequest http;
    http.path = collector_.path;
    http.text = request;
    http.deadline = real_clock().now() + kAnswerTime;
    const net::ClientResponse response = client_.send(http);
    if (response.status / 100 == 2) {
        const PartialSuccess partial = read_otlp_response(response.text());
        const std::size_t rejected = std::min<std::size_t>(partial.rejected, spans);
        sent_.fetch_add(spans - rejected, std::memory_order_relaxed);
        if (rejected > 0) drop(rejected, partial.reason);
        return {Answer::taken};
    }
    const auto wait = net::parse_decimal(response.headers.find("Retry-After").value_or(""));
    const seconds asked(std::min<std::uint64_t>(wait.value_or(0), kLongestPause.count()));
    return {is_for_later(response.status) ? Answer::later : Answer::never, asked,
            "it answered " + std::to_string(response.status)};
} catch (const net::TransportError& error) {
    return {Answer::later, milliseconds(0), error.what()};
}

void Tracer::drop(std::size_t spans, std::string_view why) {
    dropped_.fetch_add(spans, std::memory_order_relaxed);
    log::warn("spans are lost, because the collector at ", collector_.endpoint.url(), " did not take them: ", why);
}

}  // namespace shared_tensor::tracing
