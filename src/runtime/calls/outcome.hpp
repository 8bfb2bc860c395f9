#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include <shared_tensor/function.hpp>

#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::runtime {

/// The outcome of a call: a Value, which is encoded for each reader, or an error, which all readers get. Immutable.
class CallOutcome {
public:
    explicit CallOutcome(std::variant<codec::Value, json_rpc::Error> result)
        : result_(std::move(result)), bytes_(value() != nullptr ? codec::memory_of(*value()) : codec::ValueBytes{}) {}
    CallOutcome(codec::Value value, codec::ValueBytes bytes) : result_(std::move(value)), bytes_(bytes) {}

    const codec::Value* value() const { return std::get_if<codec::Value>(&result_); }
    const json_rpc::Error* error() const { return std::get_if<json_rpc::Error>(&result_); }

    bool failed() const { return error() != nullptr; }
    int code() const { return failed() ? error()->code : 0; }  ///< of the error; 0: a result
    const codec::ValueBytes& bytes() const { return bytes_; }  ///< of memory; none for an error

private:
    std::variant<codec::Value, json_rpc::Error> result_;
    codec::ValueBytes bytes_;
};

using OutcomePointer = std::shared_ptr<const CallOutcome>;

inline OutcomePointer make_outcome(std::variant<codec::Value, json_rpc::Error> result) {
    return std::make_shared<const CallOutcome>(std::move(result));
}

/// Whether the run ended only because the server ends: a later process knows nothing of it.
inline bool ended_with_server(const CallOutcome& outcome) {
    return outcome.failed() && outcome.error()->is(json_rpc::ErrorCode::shutting_down);
}

/// Returns the error that the caller gets if user code failed.
json_rpc::Error to_error(const CallFailure& failure);

/// Returns the error that the caller gets instead of a result if memory that it shares with the server failed (see
/// FaultWatch).
json_rpc::Error memory_failed();

}  // namespace shared_tensor::runtime
