// A plugin as another version of the project would build it: the first words of the manifest say so.

#include <cstdint>

namespace {
struct Manifest {
    std::uint32_t struct_size = sizeof(Manifest);
    std::uint32_t abi = 4'000'000'000;
    const char* library_version = "99";
    const void* framework = nullptr;
    const void* records = nullptr;
};
const Manifest manifest;
}  // namespace

extern "C" const void* shared_tensor_plugin_v1() noexcept { return &manifest; }
