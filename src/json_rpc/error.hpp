#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <shared_tensor/error.hpp>

#include "json_rpc/json.hpp"

// The errors of the protocol. Messages are short and fixed, so that a program may compare them; what happened and what
// to do goes into data. Nothing here blocks or keeps state.

namespace shared_tensor::json_rpc {

/// Every code that the daemon sends. A client may meet others from other servers: Error holds any int.
using shared_tensor::ErrorCode;

/// The error object of a response.
struct Error {
    int code = 0;
    std::string message;
    Json data;  ///< null: no data member

    bool is(ErrorCode other) const { return code == static_cast<int>(other); }
    friend bool operator==(const Error&, const Error&) = default;
};

/// The fixed message of a code: the specification's own words for its five.
std::string_view standard_message(ErrorCode code);

/// An error with the code's standard message. Texts in `data` end after detail::kMaxErrorText bytes.
Error make_error(ErrorCode code, Json data = nullptr);

Error parse_error(std::string_view detail);
Error invalid_request(std::string_view detail);
Error method_not_found(std::string_view name);
Error invalid_params(std::string_view detail);
/// A wrong parameter; `parameter` is its name, or its position as text where it has none.
Error invalid_params(std::string_view parameter, std::string_view expected, std::string_view got);
/// A fault of the daemon itself. Says nothing about the inside: log the cause where it is caught.
Error internal_error();

/// The function threw. The text is the user's: it may hold any bytes, printing makes it valid UTF-8.
Error function_failed(std::string_view type, std::string_view message);
/// `detail`: what there is too much of, and what to do; left out when it is empty.
Error busy(std::chrono::milliseconds retry_after, std::string_view detail = {});
Error deadline_exceeded(std::string_view detail);
Error response_too_large(std::size_t limit_bytes,
                         std::string_view detail = "ask for less at a time, or raise the server's limit");
Error cancelled(std::string_view detail);
/// `kind` is what is gone: "lease", "task", "object"; `epoch` is the running daemon's.
Error unknown_or_expired(std::string_view kind, std::string_view epoch);
/// `reasons` maps each way of transport to why it can't be taken.
Error transport_not_possible(Json reasons);
Error not_authorised(std::string_view detail);
Error out_of_memory(std::string_view detail);
Error shutting_down();
/// `item` is the id of the batch item whose failure left this one without input.
Error input_failed(Json item);

}  // namespace shared_tensor::json_rpc
