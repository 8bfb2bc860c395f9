#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shared_tensor/error.hpp>

namespace shared_tensor::server {

/// Why a request was rejected before it was a call of a function or method.
enum class RejectedFor : std::uint8_t {
    host,
    origin,
    certificate,
    token,
    user,
    permission,
    rate,
    path,
    http_method,
    content_type,
    malformed,
    timeout,
    too_large,
    overload,
    parse_error,
    invalid_request,
    unknown_method,
};
inline constexpr std::array<std::string_view, 17> kRejectionNames{
    "host",      "origin",   "certificate", "token",           "user",          "permission",
    "rate",      "path",     "http_method", "content_type",    "malformed",     "timeout",
    "too_large", "overload", "parse_error", "invalid_request", "unknown_method"};

/// Counts rejected requests by reason. Thread safety: all methods from any thread; none blocks.
class Rejections {
public:
    void count(RejectedFor reason) {
        counts_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
    }
    /// `status` is the HTTP status of the rejection.
    void count_status(int status) { count(reason_of_status(status)); }
    /// `code` is the code of the JSON-RPC error.
    void count_code(int code) { count(reason_of_code(code)); }

    std::uint64_t count_of(std::size_t reason) const { return counts_[reason].load(std::memory_order_relaxed); }

private:
    static RejectedFor reason_of_status(int status) {
        switch (status) {
            case 403: return RejectedFor::permission;
            case 404: return RejectedFor::path;
            case 405: return RejectedFor::http_method;
            case 408: return RejectedFor::timeout;
            case 413:
            case 414:
            case 431: return RejectedFor::too_large;
            case 415: return RejectedFor::content_type;
            case 429: return RejectedFor::rate;
            case 503: return RejectedFor::overload;
            default: return RejectedFor::malformed;
        }
    }
    static RejectedFor reason_of_code(int code) {
        switch (static_cast<ErrorCode>(code)) {
            case ErrorCode::parse_error: return RejectedFor::parse_error;
            case ErrorCode::method_not_found: return RejectedFor::unknown_method;
            case ErrorCode::not_authorised: return RejectedFor::permission;
            case ErrorCode::busy:
            case ErrorCode::shutting_down:
            case ErrorCode::out_of_memory: return RejectedFor::overload;
            default: return RejectedFor::invalid_request;
        }
    }

    std::array<std::atomic<std::uint64_t>, kRejectionNames.size()> counts_{};
};

}  // namespace shared_tensor::server
