#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <shared_tensor/error.hpp>

#include "protocol/json_rpc/json_text.hpp"

// The errors of the protocol. Messages are short and fixed, so that programs can compare them; the cause and the remedy
// are in `data`. Nothing here blocks or keeps state.

namespace shared_tensor::json_rpc {

/// All codes that the daemon sends. Other servers may send other codes: Error holds any int.
using shared_tensor::ErrorCode;

/// The error object of a response.
struct Error {
    int code = 0;
    std::string message;
    Json data;  ///< null: the response has no data member

    bool is(ErrorCode other) const { return code == static_cast<int>(other); }
    friend bool operator==(const Error&, const Error&) = default;
};

/// The fixed message of a code. For the five codes of the JSON-RPC specification it is the specification's text.
std::string_view standard_message(ErrorCode code);

/// An error with the standard message of its code. Texts in `data` are cut after detail::kMaxErrorText bytes.
Error make_error(ErrorCode code, Json data = nullptr);

inline Error with_detail(ErrorCode code, std::string_view detail) { return make_error(code, {{"detail", detail}}); }

inline Error parse_error(std::string_view detail) { return with_detail(ErrorCode::parse_error, detail); }
inline Error invalid_request(std::string_view detail) { return with_detail(ErrorCode::invalid_request, detail); }
inline Error invalid_params(std::string_view detail) { return with_detail(ErrorCode::invalid_params, detail); }
inline Error deadline_exceeded(std::string_view detail) { return with_detail(ErrorCode::deadline_exceeded, detail); }
inline Error cancelled(std::string_view detail) { return with_detail(ErrorCode::cancelled, detail); }
inline Error not_authorised(std::string_view detail) { return with_detail(ErrorCode::not_authorised, detail); }
inline Error out_of_memory(std::string_view detail) { return with_detail(ErrorCode::out_of_memory, detail); }
/// A fault of the daemon itself. It tells nothing about the cause: log the cause where it is caught.
inline Error internal_error() { return make_error(ErrorCode::internal_error); }
Error method_not_found(std::string_view name);
/// `began`: the function of the call had begun; then `data.may_have_run` is true, else it is not there.
Error shutting_down(bool began = false);

/// A wrong parameter; `parameter` is its name, or its position as text if it has no name.
Error invalid_params(std::string_view parameter, std::string_view expected, std::string_view got);
/// The function threw. The text comes from the user's code: it may hold any bytes; printing makes it valid UTF-8.
/// `traceback` is left out if it is empty.
Error function_failed(std::string_view type, std::string_view message, std::string_view traceback = {});
/// `detail` says which limit was reached and what to do; left out if empty.
Error busy(std::chrono::milliseconds retry_after, std::string_view detail = {});
Error response_too_large(std::size_t limit_bytes,
                         std::string_view detail = "ask for less at a time, or raise the server's limit");
/// `kind` is the kind of the missing thing: "lease", "task", "object"; `epoch` is the epoch of the running daemon;
/// `name` is left out if it is empty.
Error unknown_or_expired(std::string_view kind, std::string_view epoch, std::string_view name = {});
/// `reasons` maps each transport to the reason why it cannot be used.
Error transport_not_possible(Json reasons);
/// `item` is the id of the batch item that failed and whose result was an input of this item.
Error input_failed(Json item);
/// For a repeated call whose first run began in a server that has ended.
Error outcome_unknown();

}  // namespace shared_tensor::json_rpc
