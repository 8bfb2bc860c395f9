#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/error.hpp>

#include "net/client/client.hpp"
#include "protocol/json_rpc/error.hpp"

// Turns every failure of a call into an exception of <shared_tensor/error.hpp>.

namespace shared_tensor::client {

/// The members of a server error's `data` that the client acts on. Read once, when the error is thrown.
struct ErrorDetails {
    std::string parameter, got;                ///< with -32602; else empty
    std::string kind;                          ///< with -32005: "session", "task", "lease" ...; else empty
    bool may_have_run = false;                 ///< with -32009: the server ended while the call ran
    std::chrono::milliseconds retry_after{0};  ///< the server's minimum delay before a retry; a minute at most
};

/// The details of an error that throw_error() threw; empty details for other errors.
const ErrorDetails& details_of(const RpcError& error);

/// Throws the subclass of RpcError for the error's code, with ErrorDetails. The text starts with `method`, which may be
/// empty.
[[noreturn]] void throw_error(const json_rpc::Error& error, std::string_view method);

/// Throws the exception for an error of the HTTP client: DeadlineExceeded for a timeout, Cancelled for a stop, RpcError
/// -32003 for an answer beyond the client's limit, NotAuthorised for an untrusted certificate, ProtocolFailure for an
/// answer that breaks HTTP, else TransportFailure.
[[noreturn]] void throw_failure(const net::TransportError& error, std::string_view method, std::string_view url);

/// Throws the error in the body of a rejection (an HTTP answer that does not answer the call itself). If there is no
/// error in the body, throws as throw_foreign() does, with `who` and `may_have_run`.
[[noreturn]] void throw_rejection(const net::ClientResponse& response, std::string_view method, std::string_view who,
                                  bool may_have_run);

/// Throws for an HTTP answer that no shared-tensor-server gives. Throws TransportFailure for 502, 503 and 504, because
/// they come from a proxy that did not reach the server, else ProtocolFailure with the reason `why`. The text starts
/// with `who`.
[[noreturn]] void throw_foreign(std::string_view who, int status, const std::string& why, bool may_have_run);

/// Throws Cancelled, because CallOptions::stop was requested. `what` is the method or the path.
[[noreturn]] void throw_cancelled(std::string_view what, bool may_have_run);

/// Throws Cancelled for a call that was cancelled before it sent anything.
void check_stop(const CallOptions& options, std::string_view method);

/// Throws DeadlineExceeded, because the client's own deadline has passed.
[[noreturn]] void throw_late(std::string_view method, std::string_view url);

/// Throws TransportFailure, because `what` was made before a fork and is used in the child. `instead` says what to do.
[[noreturn]] void throw_of_parent(std::string_view what, std::string_view instead);

/// True for a TransportFailure or ShuttingDown of a call that may have run.
bool may_have_run(const RpcError& error);

/// True if the call may be sent again after `error`: it did not run, it is idempotent, or it has an idempotency key.
bool is_safe_to_repeat(const RpcError& error, const CallOptions& options);

/// True for -32005 about a session.
bool is_about_session(const json_rpc::Error& error);

}  // namespace shared_tensor::client
