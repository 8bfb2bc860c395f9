// A plugin that is damaged in the way that the variable BAD_PLUGIN names.

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <shared_tensor/version.hpp>

namespace {

// As in shared_tensor/share.hpp, which would bring a whole manifest.
struct Record {
    const void* function;
    const Record* next;
};
struct Framework {
    const char* name = "torch";
    const char* version = "";
    void (*prepare)() = nullptr;
    void (*without_grad)() = nullptr;
};
struct Manifest {
    std::uint32_t struct_size;
    std::uint32_t abi;
    const char* library_version;
    const Framework* framework;
    const Record* records;
};

char endless[4096];
Record record{nullptr, nullptr};
Framework framework;
Manifest manifest{sizeof(Manifest), SHARED_TENSOR_PLUGIN_ABI, "", &framework, &record};

std::string_view damage() {
    const char* variable = std::getenv("BAD_PLUGIN");
    return variable != nullptr ? variable : "";
}

[[maybe_unused]] const int loaded = [] {
    if (damage() == "throws") throw std::runtime_error("no licence found");
    if (damage() == "throws a number") throw 42;
    return 0;
}();

}  // namespace

extern "C" const void* shared_tensor_plugin_v1() noexcept {
    const auto wild = std::uintptr_t{16};
    if (damage() == "no manifest") return nullptr;
    if (damage() == "wild manifest") return reinterpret_cast<const void*>(wild);
    if (damage() == "no text") framework.version = nullptr;
    if (damage() == "wild text") manifest.framework = reinterpret_cast<const Framework*>(wild);
    if (damage() == "endless text") {
        for (char& one : endless)
            one = '2';
        framework.version = endless;
    }
    if (damage() == "no records") manifest.records = nullptr;
    if (damage() == "wild record") manifest.records = reinterpret_cast<const Record*>(wild);
    if (damage() == "circle") record = {endless, &record};
    if (damage() == "another version") manifest = {sizeof(Manifest), 4'000'000'000, "99", nullptr, nullptr};
    return &manifest;  // whose record has no function
}
