#include "media.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstdlib>
#include <cstring>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "tensor/device/devices.hpp"

namespace shared_tensor::test {

namespace {

TransportCase usable(TransportCase transport) {
    if (transport == "simulated") simulated::enable(1);
    if (!(transport == "cuda_ipc")) return transport;
    const auto can = tensor::Devices::of_process().use_cuda(tensor::UseCuda::if_found);
    if (!can && std::getenv("SHARED_TENSOR_TEST_NEEDS_GPU") != nullptr) FAIL("no GPU: " << can.reason);
    if (!can) SKIP("cuda_ipc: " << can.reason);
    detail::need_torch_cuda();
    return transport;
}

Words variables_of(const TransportCase& transport, Words variables) {
    variables.push_back(std::string("TEST_PLACE=") + transport.place);
    variables.push_back(std::string("TEST_CHANNEL=") + (transport.channel ? "1" : "0"));
    return variables;
}

Words server_variables(const TransportCase& transport, Words variables, int port) {
    variables.push_back("TEST_PORT=" + std::to_string(port));
    return variables_of(transport, std::move(variables));
}

}  // namespace

TransportCase any_transport(const std::vector<std::string>& but) {
    std::vector<TransportCase> wanted;
    for (const TransportCase& transport : transports_here()) {
        if (std::find(but.begin(), but.end(), transport.name) == but.end()) wanted.push_back(transport);
    }
    if (wanted.empty()) SKIP("of no meaning for " << transports_here().front().name);
    return usable(GENERATE_REF(from_range(wanted)));
}

at::Tensor put(const at::Tensor& tensor, const std::string& place) {
    if (place == "simulated") return simulated::to_device(tensor);
    return place == "cuda" ? tensor.to(at::Device(at::kCUDA, 0)) : tensor.clone();
}

bool lies_at(const at::Tensor& tensor, const std::string& place) {
    if (place == "simulated") return simulated::on_device(tensor);
    return place == "cuda" ? tensor.is_cuda() : tensor.is_cpu() && !simulated::on_device(tensor);
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
    const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
    return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

TransportServer::TransportServer(const TransportCase& transport, const Words& variables, int port)
    : transport_(transport), role_("server", server_variables(transport, variables, port)) {
    if (!role_.ready()) throw std::runtime_error("the server did not start: " + role_.out() + role_.log());
    url_ = role_.text();
}

TransportServer::~TransportServer() {
    child().signal(SIGTERM);
    child().wait();
}

ClientOptions TransportServer::client_options() const {
    ClientOptions options;
    options.url = url_;
    if (!transport_.channel) options.local_socket = "none";
    return options;
}

Client TransportServer::client() const { return Client(client_options()); }

int TransportServer::port() const { return std::stoi(url_.substr(url_.rfind(':') + 1)); }

Role holding_client(const TransportServer& server, const TransportCase& transport, int tensors, Words variables) {
    variables.push_back("TEST_URL=" + server.url());
    variables.push_back("TEST_TENSORS=" + std::to_string(tensors));
    return Role("holding client", variables_of(transport, std::move(variables)));
}

Json totals_of(const Client& client) { return Json::parse(client.info().json)["totals"]; }

bool leases_become(const Client& client, int count) {
    return eventually([&] { return totals_of(client)["shared_memory"]["leases"] == count; });
}

}  // namespace shared_tensor::test
