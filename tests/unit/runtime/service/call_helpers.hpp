#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <shared_tensor/json.hpp>
#include <shared_tensor/registry.hpp>

#include "protocol/codec/json_source.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "support/event.hpp"
#include "support/fake_tensor.hpp"
#include "support/manual_clock.hpp"

namespace shared_tensor::test {

using codec::Json;

inline runtime::OutcomePointer outcome_of(Json json) {
    return runtime::make_outcome(codec::Value{std::move(json), {}});
}
inline runtime::DispatcherOptions workers(std::size_t count, std::size_t queue = 1024) {
    runtime::DispatcherOptions options;
    options.pool.workers = count;
    options.pool.queue_limit = queue;
    return options;
}
/// 0: a value.
inline int code_of(const runtime::OutcomePointer& outcome) { return outcome->failed() ? outcome->error()->code : 0; }

/// Calls of one principal, unless another one is named, in the session s-1.
struct Calls {
    explicit Calls(const Registry& registry, runtime::DispatcherOptions options = {})
        : dispatcher(registry, options, clock) {}

    std::variant<runtime::StartedCall, json_rpc::Error> start(const std::string& method, Json params,
                                                              std::string key = {}, std::string principal = "uid:1") {
        const Json arguments = std::move(params);
        return dispatcher.call({method, arguments, {std::move(principal), "s-1", {}}, timeout, std::move(key), port});
    }
    runtime::StartedCall started(const std::string& method, Json params, std::string key = {}) {
        return std::get<runtime::StartedCall>(start(method, std::move(params), std::move(key)));
    }
    /// The outcome's JSON, or the code of its error.
    Json run(const std::string& method, Json params, std::string key = {}, std::string principal = "uid:1") {
        auto call = start(method, std::move(params), std::move(key), std::move(principal));
        if (const auto* error = std::get_if<json_rpc::Error>(&call)) return error->code;
        return end_of(*std::get<runtime::StartedCall>(call).waiter);
    }
    static Json end_of(runtime::Execution::Waiter& waiter) {
        const auto outcome = waiter.wait_until(patience());
        if (!outcome) return "no outcome in time";
        return outcome->failed() ? Json(outcome->error()->code) : outcome->value()->json;
    }
    /// The id of a new task.
    std::string submit(const std::string& method, Json params) {
        const Json arguments = std::move(params);
        const auto submitted = dispatcher.submit({method, arguments, {"uid:1", "s-1", {}}, std::nullopt, {}, port}, {});
        return std::get<std::optional<tasks::TaskInfo>>(submitted).value().id;
    }
    tasks::TaskInfo ended(const std::string& id) { return *dispatcher.tasks().wait(id, std::nullopt, patience()); }

    ManualClock clock;
    FakePort port;
    std::optional<std::chrono::milliseconds> timeout;
    runtime::Dispatcher dispatcher;
};

}  // namespace shared_tensor::test
