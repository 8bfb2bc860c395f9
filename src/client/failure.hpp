#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <shared_tensor/client_options.hpp>
#include <shared_tensor/error.hpp>

#include "http/client.hpp"
#include "json_rpc/error.hpp"

// Everything that can go wrong in a call, as the exceptions of <shared_tensor/error.hpp>.

namespace shared_tensor::client {

/// What the data of a server's error says, as far as the client acts on it. Read once, when the error is thrown.
struct ErrorDetails {
    std::string parameter, got;                ///< of -32602; else empty
    std::string kind;                          ///< of -32005: "session", "task", "lease" ...; else empty
    std::chrono::milliseconds retry_after{0};  ///< how long the server wants to be left alone; a minute at most
};

/// Of an error that throw_error() did not throw: nothing.
const ErrorDetails& details_of(const RpcError& error);

/// Throws the child of RpcError that stands for the code, with ErrorDetails. `method` leads the text for people; it may
/// be empty.
[[noreturn]] void throw_error(const json_rpc::Error& error, std::string_view method);

/// What the transport could not do: TransportFailure (of it ProtocolFailure); a timeout is the call's deadline,
/// DeadlineExceeded; an answer beyond the client's limit is -32003; a request that its caller cancelled is Cancelled.
[[noreturn]] void throw_failure(const http::TransportError& error, std::string_view method, std::string_view url);

/// An answer that is none of a call's: the error that it holds, else ProtocolFailure.
[[noreturn]] void throw_refusal(const http::ClientResponse& response, std::string_view method, std::string_view url);

/// What no server of ours answers, with the reason: ProtocolFailure, or TransportFailure where it is a proxy's word
/// that it reached none.
[[noreturn]] void throw_foreign(std::string_view who, int status, const std::string& why, bool may_have_run);

/// CallOptions::stop was requested: Cancelled. `what` is the method or the path.
[[noreturn]] void throw_cancelled(std::string_view what, bool may_have_run);

/// Throws Cancelled for a call that was cancelled before it sent anything.
void check_stop(const CallOptions& options, std::string_view method);

/// The client's own deadline has passed.
[[noreturn]] void throw_late(std::string_view method, std::string_view url);

/// `what` was made before a fork, and is used in the child: TransportFailure. `instead` says what to do.
[[noreturn]] void throw_of_parent(std::string_view what, std::string_view instead);

/// Whether a call that failed like this may be sent again without the danger that it runs twice.
bool is_safe_to_repeat(const RpcError& error, const CallOptions& options);

/// Whether what the server does not know (-32005) is the session.
bool is_about_session(const json_rpc::Error& error);

}  // namespace shared_tensor::client
