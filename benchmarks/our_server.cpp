#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/processes.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>
#include <thread>

#include "bytes.hpp"
#include "our_tensors.hpp"
#include "servers.hpp"

namespace bench {

namespace st = shared_tensor;

namespace {

nlohmann::json echo(nlohmann::json value) { return value; }
int doze(int ms) {
    if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return ms;
}
std::int64_t take(const at::Tensor& x) { return fingerprint(x.const_data_ptr(), x.nbytes()); }
at::Tensor both(at::Tensor x) { return x; }

void add_tensor_functions(st::Registry& registry) {
    registry.add("take", take, st::arg("x"));
    registry.add("both", both, st::arg("x"));
    registry.add(
        "give",
        [](std::int64_t size) {
            static std::mutex mutex;
            static std::map<std::int64_t, at::Tensor> all;
            const std::lock_guard lock(mutex);
            at::Tensor& tensor = all[size];
            if (!tensor.defined()) tensor = filled_tensor(static_cast<std::size_t>(size));
            return tensor;
        },
        st::arg("size"));
}

at::Tensor ones(std::int64_t size) {
    at::Tensor tensor = st::empty_in_shared_memory({size / 8}, at::kLong);
    std::fill_n(tensor.mutable_data_ptr<std::int64_t>(), size / 8, 1);
    return tensor;
}

/// Returns the same tensor for each call.
at::Tensor held(std::int64_t size) {
    static std::mutex mutex;
    static std::map<std::int64_t, at::Tensor> all;
    const std::lock_guard lock(mutex);
    at::Tensor& tensor = all[size];
    if (!tensor.defined()) tensor = ones(size);
    return tensor;
}

/// Returns a tensor in ordinary memory, which is copied for each call.
at::Tensor fresh(std::int64_t size) {
    static const at::Tensor source = at::ones({size / 8}, at::kLong);
    return source;
}

/// The function itself copies the tensor into shared memory.
at::Tensor born(std::int64_t size) {
    static const at::Tensor source = at::ones({size / 8}, at::kLong);
    at::Tensor tensor = st::empty_in_shared_memory({size / 8}, at::kLong);
    std::memcpy(tensor.mutable_data_ptr(), source.const_data_ptr(), static_cast<std::size_t>(size));
    return tensor;
}

void add_memory_functions(st::Registry& registry) {
    registry.add(
        "number", [](std::int64_t value) { return value; }, st::arg("value"));
    registry.add("held", held, st::arg("size"));
    registry.add("fresh", fresh, st::arg("size"));
    registry.add("born", born, st::arg("size"));
}

void stream(st::Writer<at::Tensor> items, std::int64_t bytes) {
    const at::Tensor item = filled_tensor(static_cast<std::size_t>(bytes));
    while (items.write(item)) {
    }
}

void chat(st::Reader<at::Tensor> items, st::Writer<at::Tensor> answers) {
    for (const at::Tensor& item : items)
        answers.write(item);
}

st::Registry functions(int count) {
    st::Registry registry;
    registry.add("echo", echo, st::arg("value"), st::execution::inline_);
    registry.add("echo_worker", echo, st::arg("value"));
    registry.add("doze", doze, st::arg("ms"));
    registry.add("doze_inline", doze, st::arg("ms"), st::execution::inline_);
    add_tensor_functions(registry);
    registry.add("stream", stream, st::arg("items"), st::arg("bytes"));
    registry.add("chat", chat, st::arg("items"), st::arg("answers"));
    if (count > 9) add_memory_functions(registry);
    while (registry.size() < static_cast<std::size_t>(count)) {
        registry.add(
            "function" + std::to_string(registry.size()), [](double x) { return x; }, st::arg("x"));
    }
    return registry;
}

}  // namespace

at::Tensor filled_tensor(std::size_t size) {
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(size)}, at::TensorOptions().dtype(at::kByte));
    fill(tensor.mutable_data_ptr<std::uint8_t>(), size);
    return tensor;
}

namespace {

[[noreturn]] void serve(st::Registry registry, const std::string& path, st::ServerOptions options = {}) {
    options.port = 0;
    options.unix_socket = path;
    options.calls.tasks.max_tasks = 200'000;
    options.http.idle_timeout = std::chrono::hours(1);  // idle connections are measured, not their end
    st::Server server(std::move(registry), options);
    server.start();
    announce(server.url());
    for (;;)
        ::pause();
}

}  // namespace

int serve_ours(const Arguments& role) {
    st::Registry registry = functions(std::atoi(role.at(1).c_str()));
    if (st::is_worker_process()) return st::serve_as_worker(std::move(registry)), 0;
    serve(std::move(registry), role.size() > 2 ? role[2] : "");
}

int serve_overload() {
    st::Registry registry;
    registry.add("work", [] {
        std::this_thread::sleep_for(kOverloadTime);
        return 1;
    });
    st::ServerOptions options;
    options.calls.pool.workers = kOverloadWorkers;
    options.calls.pool.queue_limit = 1;  // the queue bounds how long an accepted call waits
    serve(std::move(registry), "", std::move(options));
}

int serve_processes(const Arguments& role) {
    st::WorkerProcesses workers(
        {.processes = 1, .command = {std::filesystem::read_symlink("/proc/self/exe"), "--serve", "ours", "5"}});
    workers.start();
    serve(workers.share(), role.size() > 1 ? role[1] : "");
}

}  // namespace bench
