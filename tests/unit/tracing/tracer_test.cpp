#include "tracing/tracer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <optional>
#include <set>

#include "net/message/fields.hpp"
#include "support/collector.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using json_rpc::Json;
using tracing::CollectorAddress;
using tracing::Tracer;

namespace {

constexpr const char* kRecorded = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TraceOptions traces(const std::string& endpoint) {
    TraceOptions options;
    options.endpoint = endpoint;
    return options;
}

void end_span(Tracer& tracer, std::string_view name = "work") {
    const OpenSpan open = tracer.begin("");
    tracer.end({Span::Kind::server, name, open.traceparent, open.parent, 5ms});
}

}  // namespace

TEST_CASE("a span without a caller's trace begins a trace of its own", "[tracing]") {
    Tracer tracer(traces("http://127.0.0.1:1"), "test");
    std::set<std::string> ids;
    for (int i = 0; i < 100; ++i) {
        const OpenSpan open = tracer.begin("");
        CHECK(net::is_traceparent(open.traceparent));
        CHECK(open.traceparent.ends_with("-01"));
        CHECK(open.parent.empty());
        ids.insert(open.traceparent);
    }
    CHECK(ids.size() == 100);
}

TEST_CASE("one of so many new traces is recorded, and its later spans are with it", "[tracing]") {
    TraceOptions options = traces("http://127.0.0.1:1");
    options.every = 4;
    Tracer tracer(options, "test");
    int recorded = 0;
    for (int i = 0; i < 2000; ++i) {
        const OpenSpan open = tracer.begin("");
        const bool is_recorded = open.traceparent.ends_with("-01");
        recorded += is_recorded ? 1 : 0;
        CHECK(tracer.begin(open.traceparent).traceparent.ends_with("-01") == is_recorded);
    }
    CHECK(recorded > 350);
    CHECK(recorded < 650);
}

TEST_CASE("spans come to the collector with their names, times and attributes", "[tracing]") {
    std::optional<Collector> of_attempt;
    REQUIRE(eventually([&] {  // the spans may come in two requests, or the time of the last may be over
        of_attempt.emplace();
        {
            Tracer tracer(traces(of_attempt->url()), "my service");
            const log::Field attributes[] = {
                {"rpc.method", std::string_view("scale")}, {"number", std::int64_t{1} << 60}, {"time", 0.5}};
            const OpenSpan open = tracer.begin(kRecorded);
            tracer.end(
                {Span::Kind::client, "scale", open.traceparent, open.parent, 5ms, "deadline_exceeded", attributes});
            end_span(tracer, "bytes that are no text: \xff");
        }  // sends what waits
        return of_attempt->requests().size() == 1 && of_attempt->spans().size() == 2;
    }));
    const Collector& collector = *of_attempt;
    const Json resource = collector.requests()[0]["resourceSpans"][0];
    CHECK(resource["resource"]["attributes"][0] ==
          Json{{"key", "service.name"}, {"value", {{"stringValue", "my service"}}}});
    const Json span = collector.span({{"name", "scale"}});
    CHECK(span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736");
    CHECK(span["parentSpanId"] == "00f067aa0ba902b7");
    CHECK(span["spanId"].get<std::string>().size() == 16);
    CHECK(span["kind"] == 3);
    CHECK(span["status"]["code"] == 2);
    const auto time = [&](const char* name) { return std::stoll(span[name].get<std::string>()); };
    CHECK(time("endTimeUnixNano") - time("startTimeUnixNano") == 5'000'000);
    CHECK(std::chrono::abs(std::chrono::system_clock::now().time_since_epoch() -
                           std::chrono::nanoseconds(time("endTimeUnixNano"))) < 1min);
    CHECK(Collector::attribute(span, "rpc.method") == "scale");
    CHECK(Collector::attribute(span, "number") == "1152921504606846976");
    CHECK(Collector::attribute(span, "time") == 0.5);
    CHECK(Collector::attribute(span, "error.type") == "deadline_exceeded");
    const Json first = collector.span({{"name", "bytes that are no text: \xef\xbf\xbd"}});
    CHECK_FALSE(first.contains("parentSpanId"));
    CHECK_FALSE(first.contains("status"));
}

TEST_CASE("a collector that is busy is asked again; one that rejects the spans is not", "[tracing]") {
    const auto [status, asked, sent] =
        GENERATE(table<int, std::size_t, std::uint64_t>({{503, 2, 1}, {429, 2, 1}, {400, 1, 0}, {500, 1, 0}}));
    CAPTURE(status);
    const Collector collector({status});
    Tracer tracer(traces(collector.url()), "test");
    end_span(tracer);
    CHECK(eventually([&] { return tracer.counts().sent + tracer.counts().dropped == 1; }));
    CHECK(tracer.counts().sent == sent);
    CHECK(collector.asked() == asked);
}

TEST_CASE("spans that the collector rejects one by one are counted as dropped", "[tracing]") {
    CHECK(eventually([] {  // the spans may come in two requests
        Collector collector;
        collector.partial = R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}})";
        Tracer tracer(traces(collector.url()), "test");
        for (int i = 0; i < 3; ++i)
            end_span(tracer);
        return eventually([&] { return tracer.counts().sent + tracer.counts().dropped == 3; }) &&
               collector.requests().size() == 1 && tracer.counts().dropped == 2;
    }));
}

TEST_CASE("spans that wait for the collector are bounded, and the end of the tracer does not wait for it",
          "[tracing]") {
    TraceOptions options = traces("http://127.0.0.1:1");
    options.max_spans = 100;
    const auto begun = std::chrono::steady_clock::now();
    {
        Tracer tracer(options, "test");
        for (int i = 0; i < 250; ++i)
            end_span(tracer);
        CHECK(tracer.counts().dropped >= 50);  // two hundred at most: the thread may have taken some
        CHECK(tracer.counts().sent == 0);
    }
    CHECK(std::chrono::steady_clock::now() - begun < 10s);
}

TEST_CASE("an endpoint is a url with a port, and may have a path", "[tracing]") {
    const auto address = CollectorAddress::parse("http://127.0.0.1:4318");
    CHECK(address.endpoint.authority() == "127.0.0.1:4318");
    CHECK(address.path == "/v1/traces");
    CHECK(CollectorAddress::parse("http://[::1]:4318/").path == "/v1/traces");
    const auto other = CollectorAddress::parse("https://collector.example:443/otlp/v1/traces");
    CHECK(other.endpoint.tls);
    CHECK(other.endpoint.port == 443);
    CHECK(other.path == "/otlp/v1/traces");
}

TEST_CASE("an endpoint that is no url with a port is rejected, with an example", "[tracing]") {
    const auto [url, why] = GENERATE(table<std::string, std::string>({{"collector:4318", "scheme"},
                                                                      {"http://collector", "has no port"},
                                                                      {"http://[::1]", "has no port"},
                                                                      {"http://[::1]/v1/traces", "has no port"},
                                                                      {"http://:4318", "the host is missing"},
                                                                      {"http://collector:70000", "port"},
                                                                      {"ftp://collector:4318", "scheme"}}));
    CAPTURE(url);
    CHECK_THROWS_WITH(CollectorAddress::parse(url), ContainsSubstring("trace-endpoint") && ContainsSubstring(why) &&
                                                        ContainsSubstring("such as http://127.0.0.1:4318"));
}
