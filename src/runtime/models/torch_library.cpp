#include "runtime/models/torch_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <shared_tensor/share.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/system/files.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libshared_tensor_torch.so";
constexpr const char* kNotThere = "not there";

std::string last_error() {
    const char* const why = ::dlerror();
    return why != nullptr ? why : "no reason given";
}

/// The version of the torch in that folder, read from a file there: "2.11.0"; empty if there is no such file.
std::string version_in(const fs::path& folder) {
    constexpr std::string_view kBegin = "__version__ = '";
    std::ifstream of_python(folder / "version.py"), of_archive(folder / "build-version");
    std::string line;
    while (std::getline(of_python, line)) {
        if (line.starts_with(kBegin))
            return line.substr(kBegin.size(), line.find_first_of("+'", kBegin.size()) - kBegin.size());
    }
    std::getline(of_archive, line);
    return line.substr(0, line.find('+'));
}

/// Adds PREFIX/lib/python3.x/site-packages/torch, and dist-packages as Debian uses.
void add_python_folders(const fs::path& prefix, std::vector<std::string>& folders) {
    std::error_code error;
    for (const char* const library : {"lib", "lib64"}) {
        for (const auto& entry : fs::directory_iterator(prefix / library, error)) {
            if (!entry.path().filename().string().starts_with("python3")) continue;
            for (const char* const packages : {"site-packages", "dist-packages"})
                folders.push_back(entry.path() / packages / "torch");
        }
    }
}

/// A libtorch built for CUDA needs these two CUDA libraries. Python packages include them; otherwise they come from the
/// system's CUDA toolkit.
void load_cuda_toolkit() {
    const fs::path toolkit = "/usr/local/cuda";
    for (const char* const version : {".13", ".12"}) {
        static_cast<void>(::dlopen((toolkit / "lib64/libcudart.so").concat(version).c_str(), RTLD_NOW | RTLD_GLOBAL));
        static_cast<void>(
            ::dlopen((toolkit / "extras/CUPTI/lib64/libcupti.so").concat(version).c_str(), RTLD_NOW | RTLD_GLOBAL));
    }
}

/// Loads the libtorch of that folder. Returns the reason if it cannot be used, else an empty string.
std::string load_from(const fs::path& folder, bool is_named) {
    const fs::path file = folder / "lib" / "libtorch_cpu.so";
    std::error_code error;
    if (!fs::exists(file, error)) return kNotThere;
    const std::string version = version_in(folder);
    if (!version.empty() && version != SHARED_TENSOR_TORCH_VERSION) return "is libtorch " + version;
    if (std::string rejection = rejection_of_writers(file); !rejection.empty()) return rejection;
    if (!is_named && belongs_to_another(file)) return "belongs to another user: name it to use it all the same";
    // RTLD_GLOBAL: libshared_tensor_torch and plugins find its symbols.
    if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
    std::string why = last_error();
    load_cuda_toolkit();
    return ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr ? "" : why;
}

/// Throws std::runtime_error that lists the folders tried.
void load_libtorch(const std::string& named) {
    std::string looked;
    for (const std::string& folder : named.empty() ? torch_folders() : std::vector{named}) {
        const std::string why = load_from(folder, !named.empty());
        if (why.empty()) return;
        if (why != kNotThere || !named.empty()) looked += (looked.empty() ? "" : "; ") + folder + ": " + why;
    }
    throw std::runtime_error(
        "models need libtorch " SHARED_TENSOR_TORCH_VERSION ", which is not here" +
        (looked.empty() ? std::string(": no folder of a Python has a torch") : " (" + looked + ')') +
        "; name its folder with --libtorch (python3 -c \"import torch; print(torch.__path__[0])\")");
}

/// Throws std::runtime_error if this process has another libtorch than it was built for.
void check_libtorch() {
    const Libtorch loaded = loaded_libtorch();
    if (loaded.version.empty() || loaded.version == SHARED_TENSOR_TORCH_VERSION) return;
    throw std::runtime_error("models need libtorch " SHARED_TENSOR_TORCH_VERSION ", and this process has " +
                             loaded.path + " (" + loaded.version +
                             ") already: run another server for models, or one that is built for that version");
}

/// ../lib/shared_tensor from the folder of this program.
fs::path library_path() {
    std::error_code error;
    fs::path program = fs::read_symlink("/proc/self/exe", error);
    const auto* const started_as = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    if (error && started_as != nullptr) program = fs::absolute(started_as, error);  // /proc is not mounted
    return (program.parent_path() / ".." / SHARED_TENSOR_LIBRARY_FOLDER / kLibrary).lexically_normal();
}

/// The library finds libtorch by its own RUNPATH (in a build tree) or if the process has loaded it already. Otherwise
/// loads libtorch first.
void* open_library(const fs::path& file, const std::string& libtorch) {
    const auto open = [&] { return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); };
    void* library = libtorch.empty() ? open() : nullptr;
    if (library == nullptr) {
        if (loaded_libtorch().path.empty()) load_libtorch(libtorch);
        check_libtorch();
        library = open();
    }
    if (library == nullptr)
        throw std::runtime_error("models need " + file.string() + ", which cannot be loaded with " +
                                 loaded_libtorch().path + ": " + last_error());
    check_libtorch();
    return library;
}

const TorchModels& load_library(const std::string& libtorch) {
    constexpr const char* kEntry = "shared_tensor_torch_models";
    using Entry = const TorchModels* (*)();
    std::string name = "this program";  // linked to shared_tensor::models
    auto entry = reinterpret_cast<Entry>(::dlsym(RTLD_DEFAULT, kEntry));
    if (entry == nullptr) {
        const fs::path file = library_path();
        name = file.string();
        std::error_code error;
        if (!fs::exists(file, error))
            throw std::runtime_error("models need " + name + ", which is not there: install it beside this program" +
                                     ", or link the program to shared_tensor::models");
        std::string rejection = rejection_of_writers(file);
        if (belongs_to_another(file)) rejection = "belongs to another user: its code would run as you";
        if (!rejection.empty()) throw std::runtime_error("models need " + name + ", which " + rejection);
        entry = reinterpret_cast<Entry>(::dlsym(open_library(file, libtorch), kEntry));
    }
    const TorchModels* const models = entry != nullptr ? entry() : nullptr;
    if (models == nullptr || models->plugin_abi != SHARED_TENSOR_PLUGIN_ABI ||
        std::string_view(models->version) != SHARED_TENSOR_VERSION)
        throw std::runtime_error("models need the libshared_tensor_torch of shared_tensor " SHARED_TENSOR_VERSION
                                 "; that of " +
                                 name + " is another version's");
    return *models;
}

/// One for each process; a forked child has its parent's libraries.
constinit NeverDestroyed<OfThisProcess<Guarded<const TorchModels*>>> known;

std::string text_of_version(std::uint64_t abi_version) {
    const auto part = [&](unsigned bit) { return std::to_string((abi_version >> bit) & 0xff); };
    return part(56) + '.' + part(48) + '.' + part(40);
}

}  // namespace

Libtorch loaded_libtorch() {
    constexpr const char* kName = "libtorch_cpu.so";
    void* const library = ::dlopen(kName, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return {};
    Libtorch loaded{kName};
    const link_map* map = nullptr;
    if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0) loaded.path = map->l_name;
    // Major, minor and patch are its three highest bytes (torch/headeronly/version.h).
    using Version = std::uint64_t (*)();
    if (const auto version = reinterpret_cast<Version>(::dlsym(library, "aoti_torch_abi_version")))
        loaded.version = text_of_version(version());
    ::dlclose(library);
    std::error_code error;
    if (const fs::path file = fs::canonical(loaded.path, error); !error) loaded.path = file.string();
    return loaded;
}

std::vector<std::string> torch_folders() {
    std::vector<std::string> folders;
    for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        const char* const prefix = ::secure_getenv(variable);
        if (prefix != nullptr && *prefix != '\0') add_python_folders(prefix, folders);
    }
    add_python_folders("/usr/local", folders);
    for (const char* const packages : {"/usr/lib/python3/dist-packages/torch", "/opt/libtorch"})
        folders.emplace_back(packages);
    add_python_folders("/usr", folders);
    return folders;
}

const TorchModels& load_torch(const std::string& folder) {
    auto& held = known.value.get([] { return std::make_unique<Guarded<const TorchModels*>>(nullptr); });
    auto loaded = held.lock();  // other threads wait until it is loaded
    if (*loaded == nullptr) *loaded = &load_library(folder);
    return **loaded;
}

}  // namespace shared_tensor::models
