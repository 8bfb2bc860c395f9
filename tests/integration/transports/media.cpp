// What the tests of transports have in common, and what their other processes do: hidden test cases.

#include "media.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/stream.hpp>
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
    if (const char* const why = detail::kTorch.load_cuda()) FAIL(why);
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

bool deferred_frees_become(const Client& client, int count) {
    return eventually([&] { return totals_of(client)["device_memory"]["deferred_frees"] == count; });
}

std::map<std::string, std::uint64_t> counts_of(const Client& client) {
    return client.call<std::map<std::string, std::uint64_t>>("statistics");
}

bool is_ramp(const at::Tensor& tensor, std::int64_t count) {
    return same_values(tensor, at::arange(count, at::kFloat));
}

}  // namespace shared_tensor::test

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

const std::string& place() {
    static const std::string where = variable("TEST_PLACE");
    return where;
}

at::Tensor numbers(std::int64_t count) { return put(at::arange(count, at::kFloat), place()); }

/// The same memory every time.
const at::Tensor& held() {
    static const auto* tensor = new at::Tensor(numbers(1 << 18));
    return *tensor;
}

/// One GiB, kept.
const at::Tensor& big() {
    static const auto* tensor = new at::Tensor(numbers(1 << 28));
    return *tensor;
}

at::Tensor held_part(std::int64_t start, std::int64_t step) {
    return held().view({512, 512}).slice(1, start, 512, step).t();
}

at::Tensor strided(std::int64_t side) { return numbers(side * side).view({side, side}).t(); }

at::Tensor doubled_in_place(at::Tensor x) {
    x.mul_(2);
    return x;
}

/// Its elements are there only some time after it returned.
at::Tensor late(std::int64_t count, int milliseconds) {
    if (place() == "cuda") {
        const at::Tensor busy = put(at::ones({4096, 4096}), place());
        for (int i = 0; i < milliseconds / 3; ++i)
            (void)at::mm(busy, busy);  // some 3 ms each on a big GPU
    }
    if (place() != "simulated") return numbers(count);
    at::Tensor made = simulated::empty({count}, at::kFloat);
    simulated::launch([made, count, milliseconds] {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        made.copy_(at::arange(count, at::kFloat));
    });
    return made;
}

double sum_later(const at::Tensor& x, int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x.cpu().sum().item<double>();
}

/// Each item goes back; those that lie elsewhere than they should end it.
void echo_each(Reader<at::Tensor> items, Writer<at::Tensor> answers) {
    for (const at::Tensor& item : items) {
        if (!lies_at(item, place())) throw std::runtime_error("an item lies elsewhere");
        if (!answers.write(item)) return;
    }
}

/// The same tensor again and again.
void held_each(Writer<at::Tensor> items, int count) {
    for (int i = 0; i < count && items.write(held()); ++i) {
    }
}

at::Tensor item_and_result(Writer<at::Tensor> items) {
    items.write(held());
    return held();
}

/// Of the simulated devices of this process.
std::map<std::string, std::uint64_t> statistics() {
    const simulated::Statistics counts = simulated::statistics();
    return {{"allocations", counts.allocations},
            {"open", counts.open},
            {"events", counts.events},
            {"opened", counts.opened},
            {"closed", counts.closed},
            {"undefined", counts.freed_while_open + counts.opened_twice + counts.closed_twice}};
}

Registry functions() {
    Registry registry;
    registry.add("echo", [](const at::Tensor& x) { return x; });
    registry.add("lies_here", [](const at::Tensor& x) { return lies_at(x, place()); });
    registry.add("numbers", &numbers);
    registry.add("held", [] { return held(); });
    registry.add(
        "held_cached", [] { return held(); }, cached(std::chrono::hours(1)));
    registry.add("held_part", &held_part);
    registry.add("strided", &strided);
    registry.add("two", [] { return std::vector<at::Tensor>{held(), numbers(1000)}; });
    registry.add("big", [] { return big(); });
    registry.add("nothing", [] { return 0; });
    registry.add("doubled_in_place", &doubled_in_place);
    registry.add("late", &late);
    registry.add("sum_later", &sum_later);
    registry.add("sum_borrowed", &sum_later, borrows());
    registry.add("statistics", &statistics);
    registry.add("echo_each", &echo_each, arg("items"), arg("answers"));
    registry.add("held_each", &held_each, arg("items"), arg("count"));
    registry.add("item_and_result", &item_and_result, arg("items"));
    return registry;
}

void use_devices() {
    if (place() == "simulated") simulated::enable(1);
    if (place() == "cuda") REQUIRE(tensor::Devices::of_process().use_cuda(tensor::UseCuda::if_found));
}

}  // namespace

TEST_CASE("role: simulated devices of the environment", "[.role]") {
    CHECK(simulated::enabled() == 2);
    CHECK(simulated::on_device(simulated::to_device(at::arange(3, at::kFloat), 1)));
}

TEST_CASE("role: server", "[.role]") {
    const AwaitedSignal end(SIGTERM);
    use_devices();
    ServerOptions options;
    options.port = std::stoi(variable("TEST_PORT"));
    options.cuda = place() == "cuda" ? "on" : "off";
    if (variable("TEST_CHANNEL") == "0") options.local_socket = "none";
    if (const std::string wait = variable("TEST_CONFIRM_WITHIN_MS"); !wait.empty())
        options.leases.confirm_within = std::chrono::milliseconds(std::stoi(wait));
    Server server(functions(), options);
    server.start();
    announce(server.url());
    end.wait();
    server.stop(std::chrono::seconds(1));
}

TEST_CASE("role: holding client", "[.role]") {
    use_devices();
    ClientOptions options;
    options.url = variable("TEST_URL");
    if (variable("TEST_CHANNEL") == "0") options.local_socket = "none";
    const Client client(options);
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < std::stoi(variable("TEST_TENSORS")); ++i)
        tensors.push_back(client.call<at::Tensor>("held"));
    announce("ready");
    std::this_thread::sleep_for(std::chrono::minutes(5));
}
