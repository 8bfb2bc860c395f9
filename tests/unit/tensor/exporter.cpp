#include "exporter.hpp"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>

#include <shared_tensor/simulated.hpp>

#include "support/tensors.hpp"

namespace shared_tensor::test {

namespace {

void write(const char* variable, const std::string& text) {
    const std::string path = std::getenv(variable);
    std::ofstream(path + ".tmp") << text;
    std::rename((path + ".tmp").c_str(), path.c_str());
}

void wait_for_hangup(const sigset_t& set) {
    int signal = 0;
    ::sigwait(&set, &signal);
}

bool is_there(const std::string& path) {
    return eventually([&] { return ::access(path.c_str(), R_OK) == 0; });
}

}  // namespace

TEST_CASE("role: exporter", "[.role]") {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    simulated::enable(1);
    AnyPeer peer;
    const auto transport = tensor::make_cuda_ipc_transport(peer);
    const tensor::Transports transports({transport.get()});
    {
        tensor::TensorTransfer transfer({}, only(tensor::TransportKind::cuda_ipc), {}, transports);
        TensorRef tensor = simulated::to_device(arange<float>({1000}));
        const auto descriptor = transfer.describe(transfer.wrap(tensor));
        tensor = {};  // the lease alone keeps it
        write("TEST_READY", descriptor.dump());
        wait_for_hangup(set);
        peer.lent.clear();
    }
    std::vector<TensorRef> others;
    for (int i = 0; i < 20; ++i)
        others.push_back(simulated::to_device(arange<float>({1000 + i})));
    write("TEST_FREED", "freed");
    wait_for_hangup(set);
}

Exporter::Exporter()
    : ready_(folder_.file("ready")),
      freed_(folder_.file("freed")),
      out_(folder_.file("out")),
      err_(folder_.file("err")) {
    child_ = std::make_unique<Child>(Words{"/proc/self/exe", "role: exporter"},
                                     Words{"TEST_READY=" + ready_, "TEST_FREED=" + freed_}, out_, err_);
    if (!is_there(ready_)) throw std::runtime_error("the exporter did not start: " + text_of_file(out_));
    descriptor_ = codec::Json::parse(text_of_file(ready_));
}

void Exporter::free() {
    child_->signal(SIGUSR1);
    if (!is_there(freed_)) throw std::runtime_error("the exporter did not free its tensor");
}

}  // namespace shared_tensor::test
