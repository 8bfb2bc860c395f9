#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shared_tensor {

/// Error codes on the wire (JSON-RPC 2.0 and docs/protocol.md).
enum class ErrorCode : int {
    parse_error = -32700,
    invalid_request = -32600,
    method_not_found = -32601,
    invalid_params = -32602,
    internal_error = -32603,
    function_failed = -32000,
    busy = -32001,
    deadline_exceeded = -32002,
    response_too_large = -32003,
    cancelled = -32004,
    unknown_or_expired = -32005,
    transport_not_possible = -32006,
    not_authorised = -32007,
    out_of_memory = -32008,
    shutting_down = -32009,
    input_failed = -32010,
    outcome_unknown = -32011,
};

/// A shared function or Context::check_cancelled() throws it to end early after a cancellation.
class [[gnu::visibility("default")]] CancelledError : public std::runtime_error {
    using Base = std::runtime_error;

public:
    CancelledError() : Base("cancelled") {}
};

/// A failed call, as its caller gets it: the server's error, or (TransportFailure) the reason why there is no answer.
///
/// what() is for people: the server's message, with the cause or the remedy from its data.
class [[gnu::visibility("default")]] RpcError : public std::runtime_error {
public:
    /// `data` is the JSON text of the error's data member; empty: there is none. `text`, if not empty, becomes what().
    RpcError(int code, const std::string& message, std::string data = {}, const std::string& text = {})
        : std::runtime_error(text.empty() ? message : text), code_(code), message_(message), data_(std::move(data)) {}
    int code() const noexcept { return code_; }
    bool is(ErrorCode code) const noexcept { return code_ == static_cast<int>(code); }
    /// The message member of the server's error.
    const std::string& message() const noexcept { return message_; }
    /// JSON text of the error's data member; empty if there is none.
    const std::string& data() const noexcept { return data_; }

private:
    int code_;
    std::string message_;
    std::string data_;
};

// NOLINTBEGIN(bugprone-macro-parentheses): a class's name
#define SHARED_TENSOR_DETAIL_ERROR(Name)                          \
    class [[gnu::visibility("default")]] Name : public RpcError { \
        using RpcError::RpcError;                                 \
    }
// NOLINTEND(bugprone-macro-parentheses)

SHARED_TENSOR_DETAIL_ERROR(MethodNotFound);        ///< -32601
SHARED_TENSOR_DETAIL_ERROR(InvalidParams);         ///< -32602; data: parameter, expected, got
SHARED_TENSOR_DETAIL_ERROR(FunctionFailed);        ///< -32000; data: type and message of the function's exception
SHARED_TENSOR_DETAIL_ERROR(ServerBusy);            ///< -32001; data: retry_after_ms
SHARED_TENSOR_DETAIL_ERROR(DeadlineExceeded);      ///< -32002, or the client's own deadline
SHARED_TENSOR_DETAIL_ERROR(UnknownOrExpired);      ///< -32005
SHARED_TENSOR_DETAIL_ERROR(TransportNotPossible);  ///< -32006; data: a reason for each transport
SHARED_TENSOR_DETAIL_ERROR(NotAuthorised);         ///< -32007
SHARED_TENSOR_DETAIL_ERROR(ServerOutOfMemory);     ///< -32008
SHARED_TENSOR_DETAIL_ERROR(InputFailed);           ///< -32010; data: item, the id of the batch item that failed
/// -32011: the server ended while the call with this idempotency key ran, so it may have run or not. It is not run
/// again.
SHARED_TENSOR_DETAIL_ERROR(OutcomeUnknown);

#undef SHARED_TENSOR_DETAIL_ERROR

/// The call was cancelled: by CallOptions::stop, by the end of its client, or in the server. Code -32004.
class [[gnu::visibility("default")]] Cancelled : public RpcError {
public:
    Cancelled(int code, const std::string& message, std::string data = {}, const std::string& text = {},
              bool may_have_run = true)
        : RpcError(code, message, std::move(data), text), may_have_run_(may_have_run) {}
    /// False when nothing was sent: then the call had no effect.
    bool may_have_run() const noexcept { return may_have_run_; }

private:
    bool may_have_run_;
};

/// The server is ending. Code -32009.
class [[gnu::visibility("default")]] ShuttingDown : public RpcError {
public:
    ShuttingDown(int code, const std::string& message, std::string data = {}, const std::string& text = {},
                 bool may_have_run = false)
        : RpcError(code, message, std::move(data), text), may_have_run_(may_have_run) {}
    /// True when the server's drain time ended while the call ran; false when the call was rejected before it ran.
    bool may_have_run() const noexcept { return may_have_run_; }

private:
    bool may_have_run_;
};

/// The answer came, but the result's memory is gone: the lease ended, or the server ended and another server has taken
/// its place. No wrong bytes are ever read. Repeat the call. Data: epoch, if the server sent it.
class [[gnu::visibility("default")]] TensorExpired : public UnknownOrExpired {
    using UnknownOrExpired::UnknownOrExpired;
};

/// No answer came: the connection was refused or broke, or the answer does not follow the protocol. Code 0. This is
/// about the connection, not about the transports of tensors.
class [[gnu::visibility("default")]] TransportFailure : public RpcError {
public:
    TransportFailure(const std::string& message, bool sent) : RpcError(0, message), may_have_run_(sent) {}
    /// False if nothing was sent: then the call had no effect.
    bool may_have_run() const noexcept { return may_have_run_; }

private:
    bool may_have_run_;
};

/// The answer does not follow the protocol: the peer is not a shared_tensor server, or its answer was damaged in each
/// try.
class [[gnu::visibility("default")]] ProtocolFailure : public TransportFailure {
    using TransportFailure::TransportFailure;
};

/// The call succeeded, but its result does not fit the requested type. Code 0.
class [[gnu::visibility("default")]] ResultMismatch : public RpcError {
public:
    ResultMismatch(std::string where, std::string wanted, std::string found)
        : RpcError(0, "the result does not fit the type asked for: " + (where.empty() ? "" : where + ": ") +
                          "expected " + wanted + ", got " + found),
          path(std::move(where)),
          expected(std::move(wanted)),
          got(std::move(found)) {}
    std::string path;  ///< the place inside the result, "[2].name"; empty for the result itself
    std::string expected, got;
};

}  // namespace shared_tensor
