// The Silero voice-activity model over a stream: windows in, probabilities out, while the recording goes on.
//
//     VOICE_ACTIVITY_MODEL=silero_vad.jit shared-tensor-server --load libvoice_stream.so
//
// Each call has its own copy of the model: the weights are shared, the state is not.

#include <torch/csrc/jit/serialization/import.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

namespace {

/// The operator chooses the file, never a caller.
torch::jit::Module own_model() {
    static const torch::jit::Module kModel = [] {
        const char* path = std::getenv("VOICE_ACTIVITY_MODEL");
        if (path == nullptr) throw std::runtime_error("VOICE_ACTIVITY_MODEL does not name the model's file");
        return torch::jit::load(path);
    }();
    static std::mutex copying;
    const std::lock_guard lock(copying);
    return kModel.copy();
}

void voice_activity(shared_tensor::Reader<at::Tensor> windows, shared_tensor::Writer<float> probabilities,
                    std::int64_t sample_rate) {
    torch::jit::Module model = own_model();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& window : windows) {
        const at::Tensor probability = model.forward({window, sample_rate}).toTensor();
        if (!probabilities.write(probability.item<float>())) return;
    }
}

}  // namespace

SHARE(voice_activity, arg("windows"), arg("probabilities"), arg("sample_rate") = 16000,
      doc("The probability of speech in each window of 512 samples at 16 kHz, while they come."));
