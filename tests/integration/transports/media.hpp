#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "support/role.hpp"

namespace shared_tensor::test {

using Json = nlohmann::json;

/// A way in which tensors cross, as a test chooses it.
struct TransportCase {
    const char* name;   ///< body, shm, simulated, cuda_ipc
    const char* place;  ///< where tensors lie: host, simulated, cuda
    bool channel;       ///< the local channel is used

    bool on_device() const { return std::string(place) != "host"; }
    bool operator==(const char* other) const { return std::string(name) == other; }
};
inline constexpr TransportCase kBody{"body", "host", false}, kShm{"shm", "host", true},
    kSimulated{"simulated", "simulated", true}, kCudaIpc{"cuda_ipc", "cuda", true};

/// Those that this binary tests: transports_here.cpp, and tests/gpu/transports_gpu.cpp.
const std::vector<TransportCase>& transports_here();
/// Each of body, shm and simulated but those named; in gpu_tests only cuda_ipc, and the test is skipped, with the
/// reason, where there is no GPU (with SHARED_TENSOR_TEST_NEEDS_GPU in the environment it fails).
TransportCase any_transport(const std::vector<std::string>& but = {});

/// A copy at that place. The process sees one device.
at::Tensor put(const at::Tensor& tensor, const std::string& place);
bool lies_at(const at::Tensor& tensor, const std::string& place);
/// Values compared in host memory.
bool same_values(const at::Tensor& a, const at::Tensor& b);

/// This binary again, as a server in another process (media.cpp says what it shares).
class TransportServer {
public:
    explicit TransportServer(const TransportCase& transport, const Words& variables = {}, int port = 0);
    TransportServer(const TransportServer&) = delete;
    TransportServer& operator=(const TransportServer&) = delete;
    ~TransportServer();  ///< asks it to end

    Client client() const;
    ClientOptions client_options() const;
    Child& child() { return role_.child(); }
    const std::string& url() const { return url_; }
    int port() const;

private:
    const TransportCase transport_;
    Role role_;
    std::string url_;
};

/// This binary again, as a client that fetches `held` so many times, holds them and waits to be killed.
Role holding_client(const TransportServer& server, const TransportCase& transport, int tensors, Words variables = {});

/// A server of a transport and a client of it.
struct Connected {
    /// `but`: as for any_transport().
    explicit Connected(const std::vector<std::string>& but = {}, const Words& variables = {})
        : transport(any_transport(but)),
          name(Catch::MessageBuilder("transport", CATCH_INTERNAL_LINEINFO, Catch::ResultWas::Info) << transport.name),
          server(transport, variables) {}

    const TransportCase transport;
    const Catch::ScopedMessage name;  ///< in the messages of failed checks
    const TransportServer server;
    const Client client = server.client();
};

Json totals_of(const Client& client);
bool leases_become(const Client& client, int count);
/// Device memory of ended leases, which their readers have open.
bool deferred_frees_become(const Client& client, int count);
/// Of the simulated devices of the server.
std::map<std::string, std::uint64_t> counts_of(const Client& client);

constexpr std::int64_t kMany = 1 << 18;  ///< elements: enough for shared memory
/// 0, 1, 2, ...; all of them, unless `count` says otherwise.
bool is_ramp(const at::Tensor& tensor, std::int64_t count = kMany);

}  // namespace shared_tensor::test
