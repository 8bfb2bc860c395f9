// The only symbol that libshared_tensor_torch exports.

#include <shared_tensor/share.hpp>
#include <shared_tensor/torch.hpp>

#include "runtime/models/torch_library.hpp"
#include "torch/load_model.hpp"

extern "C" [[gnu::visibility("default")]] const shared_tensor::models::TorchModels*
shared_tensor_torch_models() noexcept {
    using namespace shared_tensor;  // NOLINT(google-build-using-namespace): within this function only
    static constexpr models::TorchModels kModels{SHARED_TENSOR_PLUGIN_ABI, SHARED_TENSOR_VERSION,
                                                 SHARED_TENSOR_TORCH_VERSION, &detail::kTorch, &models::load_model};
    return &kModels;
}
