#include "plugins.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace shared_tensor::daemon {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error("plugin " + path + ": " + why);
}

std::string absolute(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
    if (!resolved) refuse(path, "no such file");
    return resolved.get();
}

void check_file(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(path, "not a file");
    if ((status.st_mode & S_IWOTH) != 0) refuse(path, "writable by everybody: chmod o-w it");
    if (status.st_uid != ::getuid() && status.st_uid != 0)
        refuse(path, "belongs to another user: its code would run as you");
}

void check_manifest(const std::string& path, const detail::PluginManifest& manifest) {
    if (manifest.struct_size != sizeof manifest || manifest.abi != SHARED_TENSOR_PLUGIN_ABI) {
        refuse(path, "built for plugin ABI " + std::to_string(manifest.abi) + ", this server has " +
                         std::to_string(SHARED_TENSOR_PLUGIN_ABI) +
                         ": rebuild it against shared_tensor " SHARED_TENSOR_VERSION);
    }
    const std::string theirs = manifest.torch_version;
    if (!theirs.empty() && theirs != SHARED_TENSOR_TORCH_VERSION) {
        refuse(path,
               "built with libtorch " + theirs + ", this server runs " SHARED_TENSOR_TORCH_VERSION ": rebuild it");
    }
}

}  // namespace

void load_plugin(const std::string& given, Registry& registry) {
    const std::string path = absolute(given);
    check_file(path);
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) refuse(path, ::dlerror());
    using Entry = const detail::PluginManifest* (*)() noexcept;
    const auto entry = reinterpret_cast<Entry>(::dlsym(handle, "shared_tensor_plugin_v1"));
    if (entry == nullptr)
        refuse(path, "not a shared_tensor plugin: no symbol shared_tensor_plugin_v1 (does it use SHARE?)");
    const detail::PluginManifest* manifest = entry();
    check_manifest(path, *manifest);
    if (manifest->records == nullptr) refuse(path, "shares no function");
    registry.add_records(manifest->records);
}  // the handle is never closed: functions of the plugin may run until the process ends

}  // namespace shared_tensor::daemon
