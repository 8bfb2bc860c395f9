#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/log/spans.hpp"
#include "net/client/client.hpp"

namespace shared_tensor::tracing {

/// Where a collector takes spans.
struct CollectorAddress {
    net::Endpoint endpoint;
    std::string path = "/v1/traces";

    /// Reads "http://127.0.0.1:4318" or "https://collector:4318/path". Throws std::invalid_argument.
    static CollectorAddress parse(std::string_view url);
};

/// Sends spans to a collector from a thread of its own: every second, or as soon as many wait. If the collector cannot
/// take them now, it is asked again, up to five times, as OTLP says. Spans that wait are bounded; later ones are
/// dropped and counted.
/// Thread safety: all methods from any thread.
class Tracer final : public SpanSink {
public:
    /// `service`: the attribute service.name. Throws std::invalid_argument for an endpoint that cannot be used.
    Tracer(const TraceOptions& options, std::string service);
    ~Tracer() override { stop(); }
    /// Sends the spans that wait, for two seconds at most, and ends. Later spans are dropped. Call it from one thread.
    void stop();

    OpenSpan begin(std::string_view traceparent) override;
    void end(const Span& span) noexcept override;

    struct Counts {
        std::uint64_t sent = 0, dropped = 0;
    };
    Counts counts() const { return {sent_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)}; }

private:
    using Spans = std::vector<std::string>;  // each printed by otlp_span()
    enum class Answer { taken, later, never };
    struct Reply {
        Answer answer;
        std::chrono::milliseconds pause{0};  ///< that the collector asks for
        std::string reason{};
    };

    struct Waiting {
        Spans spans;
        bool ended = false;  ///< the thread takes no more
    };

    void run(const std::stop_token& stop) noexcept;
    void send(const std::stop_token& stop);
    Reply post(const std::string& request, std::size_t spans);
    void drop(std::size_t spans, std::string_view why);
    void take_spans(const std::stop_token& stop);

    const std::size_t max_spans_, every_;
    const std::string service_;
    const CollectorAddress collector_;
    net::Client client_;
    std::atomic<std::uint64_t> sent_{0}, dropped_{0};
    Guarded<Waiting> waiting_;
    Spans taken_;          // for the next request; its memory is reserved
    std::jthread thread_;  // after all that it uses
};

}  // namespace shared_tensor::tracing
