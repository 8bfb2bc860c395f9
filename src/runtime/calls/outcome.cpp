#include "runtime/calls/outcome.hpp"

namespace shared_tensor::runtime {

json_rpc::Error to_error(const CallFailure& failure) {
    switch (failure.kind) {
        case CallFailure::Kind::invalid_params:
            return json_rpc::invalid_params(failure.parameter, failure.expected, failure.got);
        case CallFailure::Kind::out_of_memory:
            return json_rpc::out_of_memory("the call needed more memory than there is; nothing else was harmed");
        case CallFailure::Kind::cancelled: return json_rpc::cancelled("the call was cancelled while it ran");
        case CallFailure::Kind::threw: break;
    }
    return json_rpc::function_failed(failure.type, failure.message);
}

json_rpc::Error memory_failed() {
    return json_rpc::function_failed(
        "MemoryFault",
        "shared memory that this client may use failed while the call ran (SIGBUS: a page of it could not be read or "
        "written), so the result was dropped: send the tensors in new memory, or as bytes");
}

}  // namespace shared_tensor::runtime
