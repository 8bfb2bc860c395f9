#include "processes/remote_function.hpp"

#include <utility>

#include <shared_tensor/detail/failure.hpp>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::processes {

CallFailure worker_died(std::string how) {
    CallFailure failure;
    failure.type = "WorkerDied";
    failure.message = std::move(how);
    return failure;
}

CallFailure failure_of(const RpcError& error) {
    const auto parsed = json_rpc::parse_json(error.data(), {});
    const auto* known = std::get_if<json_rpc::Json>(&parsed);
    const json_rpc::Json data = known != nullptr ? *known : json_rpc::Json();
    CallFailure failure;
    failure.type = json_rpc::text_member(data, "type");
    failure.message = json_rpc::text_member(data, "message");
    failure.traceback = json_rpc::text_member(data, "traceback");
    failure.parameter = json_rpc::text_member(data, "parameter");
    failure.expected = json_rpc::text_member(data, "expected");
    failure.got = json_rpc::text_member(data, "got");
    switch (static_cast<ErrorCode>(error.code())) {
        case ErrorCode::function_failed: return failure;
        case ErrorCode::invalid_params: failure.kind = CallFailure::Kind::invalid_params; return failure;
        case ErrorCode::out_of_memory: failure.kind = CallFailure::Kind::out_of_memory; return failure;
        case ErrorCode::busy: failure.kind = CallFailure::Kind::busy; return failure;
        case ErrorCode::cancelled:
        case ErrorCode::deadline_exceeded: failure.kind = CallFailure::Kind::cancelled; return failure;
        default: break;
    }
    failure.type = "shared_tensor::RpcError";
    failure.message = detail::bounded_text(error.what());
    return failure;
}

}  // namespace shared_tensor::processes
