#pragma once

// Tensors, clients, and ways that harm what goes through, for tests of transfers. Without libtorch, whose headers are
// dear to compile.

#include <functional>
#include <utility>

#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/tensors.hpp"

namespace shared_tensor::test {

/// int32: `first`, `first` + 1, ...
inline TensorRef numbers(std::int64_t count, int first = 0) {
    std::vector<std::int32_t> elements(static_cast<std::size_t>(count));
    std::iota(elements.begin(), elements.end(), first);
    return tensor_of(elements);
}
/// float32: 0, `step`, 2 * `step`, ...: the ramp of the example plugin, multiplied by `step`.
inline TensorRef ramp(std::int64_t count, float step = 1) {
    std::vector<float> elements(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < elements.size(); ++i)
        elements[i] = static_cast<float>(i) * step;
    return tensor_of(elements);
}

/// Tries again at once, and often.
inline ClientOptions patient() {
    ClientOptions options;
    options.retry = fixed_delay(std::chrono::milliseconds(5), 100);
    options.retry_budget.saved = 10'000;
    return options;
}

/// A daemon behind a proxy, and its named tensors on a way that harms nothing.
struct Behind {
    explicit Behind(
        std::function<Harm(int)> harm = [](int) { return Harm(); }, const Words& options = {})
        : proxy(std::move(harm)),
          server(joined(options, {"--allowed-host", proxy.authority()})),
          near(server.client()) {
        proxy.pass_on_to(server.daemon.port());
    }
    Client client(ClientOptions options = {}) const { return far_client(proxy.url(), std::move(options)); }

    FaultyProxy proxy;
    ExampleDaemon server;
    NamedTensors near;
};

}  // namespace shared_tensor::test
