#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "base/log/log.hpp"

namespace shared_tensor {

/// The identity of a span while its work goes on.
struct OpenSpan {
    std::string traceparent;  ///< of the span itself (W3C Trace Context), for the spans below it; empty: no tracing
    std::string parent;       ///< the id of the span above it; empty: it is the first of its trace
};

/// Whether the trace of a traceparent is recorded: the last bit of its flags. Others have no spans.
inline bool is_recorded(std::string_view traceparent) {
    constexpr std::string_view kOdd = "13579bdf";
    return !traceparent.empty() && kOdd.find(traceparent.back()) != std::string_view::npos;
}

/// A span that has ended: one piece of work in a trace. Its texts must live until it is taken.
struct Span {
    enum class Kind { internal = 1, server = 2, client = 3 };  ///< the numbers of OTLP
    Kind kind;
    std::string_view name;
    std::string_view traceparent, parent;  ///< as in OpenSpan
    std::chrono::nanoseconds duration;     ///< it ends now
    std::string_view error{};              ///< name of the kind of error; empty: none
    std::span<const log::Field> attributes{};
};

/// Takes spans. Thread safety: all methods from any thread; none blocks.
class SpanSink {
public:
    virtual ~SpanSink() = default;
    /// Begins a span below the one that `traceparent` names; empty: a new trace. Throws std::bad_alloc.
    virtual OpenSpan begin(std::string_view traceparent) = 0;
    /// Takes a span. Drops it if its trace is not recorded, if too many wait, or if there is no memory.
    virtual void end(const Span& span) noexcept = 0;
};

}  // namespace shared_tensor
