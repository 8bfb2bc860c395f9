// A plugin that is damaged in the way that BAD_PLUGIN names.

#include <cstdint>
#include <stdexcept>

#include <shared_tensor/version.hpp>

#define NULL_MANIFEST 1
#define WILD_MANIFEST 2
#define NULL_TEXT 3
#define WILD_TEXT 4
#define ENDLESS_TEXT 5
#define NO_RECORDS 6
#define WILD_RECORD 7
#define NULL_FUNCTION 8
#define CIRCLE 9
#define THROWS 10
#define THROWS_NUMBER 11

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

[[maybe_unused]] const void* wild() { return reinterpret_cast<const void*>(std::uintptr_t{16}); }

void damage() {
    for (char& one : endless)
        one = '2';
#if BAD_PLUGIN == NULL_TEXT
    framework.version = nullptr;
#elif BAD_PLUGIN == WILD_TEXT
    manifest.framework = static_cast<const Framework*>(wild());
#elif BAD_PLUGIN == ENDLESS_TEXT
    framework.version = endless;
#elif BAD_PLUGIN == NO_RECORDS
    manifest.records = nullptr;
#elif BAD_PLUGIN == WILD_RECORD
    manifest.records = static_cast<const Record*>(wild());
#elif BAD_PLUGIN == CIRCLE
    record = {endless, &record};
#endif
}

#if BAD_PLUGIN == THROWS
[[maybe_unused]] const int thrown = []() -> int { throw std::runtime_error("no licence found"); }();
#elif BAD_PLUGIN == THROWS_NUMBER
[[maybe_unused]] const int thrown = []() -> int { throw 42; }();
#endif

}  // namespace

extern "C" const void* shared_tensor_plugin_v1() noexcept {
    damage();
#if BAD_PLUGIN == NULL_MANIFEST
    return nullptr;
#elif BAD_PLUGIN == WILD_MANIFEST
    return wild();
#else
    return &manifest;
#endif
}
