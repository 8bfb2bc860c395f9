#include "protocol/json_rpc/error.hpp"

#include <utility>

#include <shared_tensor/detail/failure.hpp>

namespace shared_tensor::json_rpc {
namespace {

/// Texts come from exceptions and requests, so they can be long.
void bound_texts(Json& data) {
    if (data.is_structured()) {
        for (Json& member : data)
            bound_texts(member);
    } else if (data.is_string() && data.get_ref<const std::string&>().size() > detail::kMaxErrorText) {
        data = detail::bounded_text(data.get_ref<const std::string&>());
    }
}

}  // namespace

std::string_view standard_message(ErrorCode code) {
    switch (code) {
        case ErrorCode::parse_error: return "Parse error";
        case ErrorCode::invalid_request: return "Invalid Request";
        case ErrorCode::method_not_found: return "Method not found";
        case ErrorCode::invalid_params: return "Invalid params";
        case ErrorCode::internal_error: return "Internal error";
        case ErrorCode::function_failed: return "Function failed";
        case ErrorCode::busy: return "Server busy";
        case ErrorCode::deadline_exceeded: return "Deadline exceeded";
        case ErrorCode::response_too_large: return "Response too large";
        case ErrorCode::cancelled: return "Cancelled";
        case ErrorCode::unknown_or_expired: return "Unknown or expired";
        case ErrorCode::transport_not_possible: return "Transport not possible";
        case ErrorCode::not_authorised: return "Not authorised";
        case ErrorCode::out_of_memory: return "Out of memory";
        case ErrorCode::shutting_down: return "Shutting down";
        case ErrorCode::input_failed: return "Input failed";
        case ErrorCode::outcome_unknown: return "Outcome unknown";
    }
    return "Server error";
}

Error make_error(ErrorCode code, Json data) {
    bound_texts(data);
    return {static_cast<int>(code), std::string(standard_message(code)), std::move(data)};
}

Error method_not_found(std::string_view name) {
    return make_error(ErrorCode::method_not_found,
                      {{"method", name}, {"detail", "nothing is shared by this name; rpc.discover lists what is"}});
}

Error invalid_params(std::string_view parameter, std::string_view expected, std::string_view got) {
    return make_error(ErrorCode::invalid_params, {{"parameter", parameter}, {"expected", expected}, {"got", got}});
}

Error function_failed(std::string_view type, std::string_view message, std::string_view traceback) {
    Json data{{"type", type}, {"message", message}};
    if (!traceback.empty()) data["traceback"] = traceback;
    return make_error(ErrorCode::function_failed, std::move(data));
}

Error busy(std::chrono::milliseconds retry_after, std::string_view detail) {
    Json data{{"retry_after_ms", retry_after.count()}};
    if (!detail.empty()) data["detail"] = detail;
    return make_error(ErrorCode::busy, std::move(data));
}

Error response_too_large(std::size_t limit_bytes, std::string_view detail) {
    return make_error(ErrorCode::response_too_large, {{"limit_bytes", limit_bytes}, {"detail", detail}});
}

Error unknown_or_expired(std::string_view kind, std::string_view epoch, std::string_view name) {
    Json data{{"kind", kind}, {"epoch", epoch}};
    if (!name.empty()) data["name"] = name;
    return make_error(ErrorCode::unknown_or_expired, std::move(data));
}

Error transport_not_possible(Json reasons) {
    return make_error(ErrorCode::transport_not_possible, {{"reasons", std::move(reasons)}});
}

Error shutting_down(bool began) {
    if (!began)
        return with_detail(ErrorCode::shutting_down, "the daemon takes no new calls; connect again once it is back");
    Error error = with_detail(ErrorCode::shutting_down,
                              "the daemon ended while the call ran: repeat the call only if that does no harm");
    error.data["may_have_run"] = true;
    return error;
}

Error input_failed(Json item) {
    Error error = make_error(ErrorCode::input_failed);
    error.data = {{"item", std::move(item)}};  // an id is never shortened
    return error;
}

Error outcome_unknown() {
    return with_detail(ErrorCode::outcome_unknown,
                       "the server ended while the call with this idempotency key ran: it may have run or not; find "
                       "out, then use a new key to run it again");
}

}  // namespace shared_tensor::json_rpc
