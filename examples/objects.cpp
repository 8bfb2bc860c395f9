// Objects that stay in the server, and batches whose items use results of other items.
//
//     shared-tensor-server --load libexample_plugin.so --model vad=silero_vad.jit &
//     objects

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using shared_tensor::Client;
using shared_tensor::named;
using shared_tensor::Object;
using Words = std::vector<std::string>;

void check(bool right, const char* what) {
    if (!right) throw std::runtime_error(std::string("not as expected: ") + what);
    std::printf("%s\n", what);
}

/// The function makes a C++ object that cannot be sent. Its result is a handle, which other functions take as an
/// argument.
void share_a_vocabulary(const Client& client) {
    const auto words = client.call<Object>("vocabulary.make", Words{"the", "cat", "sat"});
    std::printf("a handle of type %s\n", std::string(words.type()).c_str());
    check(client.call<std::vector<int>>("vocabulary.numbers", words, Words{"sat", "dog"}) == std::vector<int>{2, -1},
          "sat is 2, dog is unknown");

    // This function takes Shared<Vocabulary>, so it has exclusive access; other calls wait in the queue meanwhile.
    check(client.call<int>("vocabulary.add", words, "dog") == 4, "four words now");
    check(client.call<std::vector<int>>("vocabulary.numbers", words, Words{"dog"})[0] == 3, "dog is 3");

    // A handle of another type is rejected before the function runs.
    try {
        client.call("vocabulary.add", client.call<Object>("model.create", "vad"), "word");
        throw std::runtime_error("a model was taken for a vocabulary");
    } catch (const shared_tensor::InvalidParams& error) {
        std::printf("%s\n", error.what());
    }
}  // the last copy of the handle is destroyed: the server destroys the object

/// A stateful model: each instance processes its own sound.
void listen_twice(const Client& client) {
    const at::Tensor sound = (at::arange(512, at::TensorOptions().dtype(at::kFloat)).sin() * 0.3).unsqueeze(0);
    const auto heard = [&](const Object& instance) {
        return client
            .call<at::Tensor>("vad.forward", named("x", sound), named("sr", 16000), named("instance", instance))
            .item<float>();
    };
    const auto anna = client.call<Object>("model.create", "vad"), ben = client.call<Object>("model.create", "vad");
    const float first = heard(anna), second = heard(anna);
    check(first != second, "an instance keeps its state");
    check(heard(ben) == first && heard(ben) == second, "another one has its own");
}

/// The result of a batch item is an argument of a later item: the tensor does not leave the server.
void chain_calls(const Client& client) {
    const at::Tensor x = at::arange(1 << 20, at::TensorOptions().dtype(at::kFloat));
    auto batch = client.batch();
    const auto twice = batch.add<at::Tensor>("scale", x, 2.0);
    const auto six = batch.add<at::Tensor>("scale", twice, 3.0);
    const auto made = batch.add<Object>("vocabulary.make", Words{"one", "two"});
    const auto count = batch.add<int>("vocabulary.add", made, "three");
    const auto broken = batch.add("fail", "on purpose");
    const auto never = batch.add<at::Tensor>("scale", broken);
    batch.send();
    check(six.get().equal(x * 6), "2 times 3 is 6");
    check(count.get() == 3, "an object may be named as well");
    try {
        (void)never.get();
    } catch (const shared_tensor::InputFailed& error) {
        std::printf("InputFailed %d\n", error.code());
    }
}

}  // namespace

int main() {
    try {
        const Client client;  // SHARED_TENSOR_URL, else the default port of this machine
        share_a_vocabulary(client);
        listen_twice(client);
        chain_calls(client);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "objects: %s\n", error.what());
        return 1;
    }
}
