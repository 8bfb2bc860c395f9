#include "program.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

#include <shared_tensor/detail/failure.hpp>

#include "base/bytes/control_characters.hpp"
#include "base/log/standard_error.hpp"
#include "base/system/files.hpp"
#include "base/system/unique_fd.hpp"
#include "elf_check.hpp"
#include "ending.hpp"
#include "runtime/models/torch_library.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::daemon {

namespace {

/// Makes one line: texts from the plugin may contain control characters.
std::string line_about(const std::string& path, const std::string& why) {
    std::string line;
    without_controls("plugin " + path + ": " + why, [&](char c) { line += c; });
    return line;
}

[[noreturn]] void reject_plugin(const std::string& path, const std::string& why) {
    throw std::runtime_error(line_about(path, why));
}

std::string absolute(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
    if (!resolved) reject_plugin(path, "no such file");
    return resolved.get();
}

void check_file(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) reject_plugin(path, "not a file");
    if (const std::string rejection = rejection_of_writers(path); !rejection.empty()) reject_plugin(path, rejection);
    if (belongs_to_another(path)) reject_plugin(path, "belongs to another user: its code would run as you");
}

namespace fs = std::filesystem;

constexpr const char* kLibtorch = "libtorch_cpu.so";

/// The libtorch that the loader would find in the library's own folders; empty: the loader would search elsewhere.
std::string found_in(const fs::path& library, const std::vector<std::string>& folders) {
    for (std::string folder : folders) {
        for (const std::string_view origin : {"$ORIGIN", "${ORIGIN}"}) {
            if (folder.starts_with(origin)) folder.replace(0, origin.size(), library.parent_path().string());
        }
        std::error_code error;
        const fs::path file = fs::canonical(fs::path(folder) / kLibtorch, error);
        if (!error) return file.string();
    }
    return {};
}

/// Why a library cannot be loaded into this process; empty if it can. A process can have only one libtorch: the loader
/// would bind the library to the loaded libtorch by name, whatever its version.
std::string libtorch_rejection(const std::string& path, const ElfNeeds& needs) {
    const bool uses_torch = std::any_of(needs.libraries.begin(), needs.libraries.end(), [](const std::string& name) {
        return name.starts_with("libtorch") || name.starts_with("libc10");
    });
    const std::string loaded = uses_torch ? models::loaded_libtorch().path : std::string();
    const std::string own = loaded.empty() ? std::string() : found_in(path, needs.folders);
    if (own.empty() || own == loaded) return {};
    return "it is linked to " + own + ", and this process has " + loaded +
           " already: a server can load plugins and models of one libtorch only. Build the library with this "
           "libtorch, or run another server for it";
}

void check_library(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) reject_plugin(path, "cannot be opened: permission denied, or it is gone");
    ElfNeeds needs;
    if (const std::string rejection = elf_rejection_of_file(file.get(), needs); !rejection.empty())
        reject_plugin(path, rejection);
    if (const std::string rejection = libtorch_rejection(path, needs); !rejection.empty())
        reject_plugin(path, rejection);
}

/// Copies a record from an address in this process; nullopt if there is no memory. Following an invalid pointer would
/// end the process by SIGSEGV.
template <class Record>
std::optional<Record> copy_of(const void* address) {
    Record copy{};
    const iovec to{&copy, sizeof copy};
    const iovec from{const_cast<void*>(address), sizeof copy};  // NOLINT(cppcoreguidelines-pro-type-const-cast): read
    const ssize_t got = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
    if (got == static_cast<ssize_t>(sizeof copy)) return copy;
    if (got >= 0 || errno == EFAULT) return std::nullopt;
    return *static_cast<const Record*>(address);  // the system call is not allowed here
}

/// Copies a short text of the plugin; nullopt if it is too long, or if there is no memory.
std::optional<std::string> text_of(const char* address) {
    constexpr std::size_t kMost = 100;
    std::string text;
    for (; address != nullptr && text.size() < kMost; ++address) {
        const auto character = copy_of<char>(address);
        if (!character) break;
        if (*character == '\0') return text;
        text += *character;
    }
    return std::nullopt;
}

/// Checks the size and the ABI first, because other versions may have another layout behind them.
detail::PluginManifest checked_manifest(const std::string& path, const void* address) {
    struct Start {
        std::uint32_t struct_size, abi;
    };
    static const std::string kDamaged =
        "its manifest is damaged: build it again with SHARE of shared_tensor " SHARED_TENSOR_VERSION;
    if (address == nullptr) reject_plugin(path, "shared_tensor_plugin_v1 returns no manifest (a null pointer)");
    const auto start = copy_of<Start>(address);
    if (!start) reject_plugin(path, kDamaged);
    if (start->struct_size != sizeof(detail::PluginManifest) || start->abi != SHARED_TENSOR_PLUGIN_ABI) {
        reject_plugin(path, "built for plugin ABI " + std::to_string(start->abi) + ", this server has " +
                                std::to_string(SHARED_TENSOR_PLUGIN_ABI) +
                                ": rebuild it against shared_tensor " SHARED_TENSOR_VERSION);
    }
    const auto manifest = copy_of<detail::PluginManifest>(address);
    if (!manifest) reject_plugin(path, kDamaged);
    if (manifest->framework == nullptr) return *manifest;
    const auto framework = copy_of<detail::Framework>(manifest->framework);
    const auto torch = framework ? text_of(framework->version) : std::nullopt;
    if (!torch) reject_plugin(path, kDamaged);
    const models::Libtorch loaded = models::loaded_libtorch();
    if (!torch->empty() && !loaded.version.empty() && *torch != loaded.version)
        reject_plugin(path, "built with libtorch " + *torch + ", this process has " + loaded.path + " (" +
                                loaded.version + "): build the plugin with this libtorch");
    return *manifest;
}

void check_records(const std::string& path, const detail::ShareRecord* records) {
    if (records == nullptr) reject_plugin(path, "shares no function");
    std::set<const void*> seen;
    for (const void* next = records; next != nullptr;) {
        const auto record = copy_of<detail::ShareRecord>(next);
        if (!record || !copy_of<const void*>(record->function) || !seen.insert(next).second)
            reject_plugin(path, "its list of functions is damaged: share functions with SHARE only");
        next = record->next;
    }
}

/// Adds the kind of device that a plugin provides: simulated devices, for tests.
void add_devices(const std::string& path, void* handle) {
    using Entry = const tensor::DeviceKindEntry* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(handle, "shared_tensor_device_kind"));
    if (entry == nullptr) return;
    const tensor::DeviceKindEntry* const devices = entry();
    if (std::string_view(devices->version) != SHARED_TENSOR_VERSION)
        reject_plugin(path, std::string("its devices are of shared_tensor ") + devices->version +
                                ", this server is " SHARED_TENSOR_VERSION
                                ": use the plugin that was installed with the server");
    tensor::add_device_kind(devices->kind);
}

std::string loading;  // the plugin whose static initialisers are running

/// The terminate handler while a plugin is loaded: an exception of a static initialiser cannot pass through the loader.
[[noreturn]] void end_loading() {
    std::string what = "something that is no std::exception";
    try {
        if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
        what = "nothing, but called std::terminate()";
    } catch (const std::exception& error) {
        what = detail::bounded_text(detail::text_of(error));
    } catch (...) {  // it has no text
    }
    const std::string line = line_about(loading, "a static initialiser threw: " + what);
    write_to_standard_error("shared-tensor-server: " + line + '\n', IfFull::drop);
    leave(1);
}

/// The plugin's static initialisers run here.
void* open_library(const std::string& path) {
    loading = path;
    const std::terminate_handler before = std::set_terminate(&end_loading);
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::set_terminate(before);
    if (handle == nullptr) reject_plugin(path, ::dlerror());
    return handle;
}

}  // namespace

void load_plugin(const std::string& given, Registry& registry) {
    const std::string path = absolute(given);
    check_file(path);
    check_library(path);
    void* handle = open_library(path);
    using Entry = const void* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(handle, "shared_tensor_plugin_v1"));
    if (entry == nullptr)
        reject_plugin(path, "not a shared_tensor plugin: no symbol shared_tensor_plugin_v1 (does it use SHARE?)");
    const detail::PluginManifest manifest = checked_manifest(path, entry());
    check_records(path, manifest.records);
    registry.add_records(manifest.records, path);
    registry.use(manifest.framework);
    add_devices(path, handle);
}  // the handle is never closed: functions of the plugin may run until the process ends

}  // namespace shared_tensor::daemon
