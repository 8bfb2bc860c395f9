#pragma once

// What the snippets of the documents use without saying where it comes from.

#include <ATen/ATen.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/client/batch.hpp>
#include <shared_tensor/client/stream_call.hpp>
#include <shared_tensor/coroutine.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

using namespace shared_tensor;         // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

namespace shop {

struct Catalogue {
    explicit Catalogue(const std::string& path);
    double price(const std::string& item) const;
    void set(const std::string& item, double price);
};

}  // namespace shop

using shop::Catalogue;

using StateDict = std::map<std::string, at::Tensor>;

/// What a coroutine of a user's own may look like.
struct Work {
    struct promise_type {
        Work get_return_object();
        std::suspend_never initial_suspend() noexcept;
        std::suspend_never final_suspend() noexcept;
        void return_void();
        void unhandled_exception();
    };
};
struct Pool {
    void post(std::coroutine_handle<> coroutine);
};

#define CHECK(condition) static_cast<void>(condition)

float probability_of(const at::Tensor& window);
template <class... Values>
void use(const Values&... values);

#define GIVEN                                                                                          \
    [[maybe_unused]] Client client, [[maybe_unused]] at::Tensor x, [[maybe_unused]] at::Tensor window, \
        [[maybe_unused]] StateDict state_dict, [[maybe_unused]] std::string text,                      \
        [[maybe_unused]] std::vector<std::string> list
