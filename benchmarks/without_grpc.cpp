#include "peers.hpp"
#include "servers.hpp"

namespace bench {

bool have_grpc() { return false; }
int serve_grpc(const Arguments&) { return 1; }
Caller grpc_echo(const std::string&, int, const std::string&) { return {}; }
StreamPeer grpc_streams(const std::string&) { return {}; }
Caller grpc_take(const std::string&, int, std::size_t) { return nullptr; }
TensorCallers grpc_chunks(const std::string&, std::size_t) { return {}; }
TensorCallers grpc_tensors(const std::string&, std::size_t) { return {}; }

}  // namespace bench
