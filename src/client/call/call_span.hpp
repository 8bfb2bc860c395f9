#pragma once

#include <string>
#include <string_view>

#include <shared_tensor/error.hpp>

#include "base/concurrency/clock.hpp"
#include "base/log/spans.hpp"

namespace shared_tensor::client {

/// The client's span of one request, from its first try to its last. Ends in the destructor.
class CallSpan {
public:
    /// `parent`: the traceparent of the span above it; empty: none. The texts and `spans` must outlive the span.
    CallSpan(SpanSink& spans, const Clock& clock, std::string_view method, std::string_view request_id,
             std::string_view parent)
        : spans_(spans),
          clock_(clock),
          method_(method),
          request_id_(request_id),
          begun_(clock.now()),
          open_(spans.begin(parent)) {}
    CallSpan(const CallSpan&) = delete;
    CallSpan& operator=(const CallSpan&) = delete;
    ~CallSpan() {
        const log::Field attributes[] = {{"rpc.system", std::string_view("jsonrpc")},
                                         {"rpc.jsonrpc.version", std::string_view("2.0")},
                                         {"rpc.method", method_},
                                         {"shared_tensor.request_id", request_id_}};
        spans_.end(
            {Span::Kind::client, method_, open_.traceparent, open_.parent, clock_.now() - begun_, error_, attributes});
    }

    const std::string& traceparent() const { return open_.traceparent; }

    /// Returns what `send()` returns. If it throws, the span has the code of the error.
    template <class Send>
    auto run(Send send) {
        try {
            return send();
        } catch (const RpcError& error) {
            error_ = std::to_string(error.code());
            throw;
        }
    }

private:
    SpanSink& spans_;
    const Clock& clock_;
    const std::string_view method_, request_id_;
    const SteadyTime begun_;
    const OpenSpan open_;
    std::string error_;
};

}  // namespace shared_tensor::client
