#include "libtorch_check.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "runtime/models/torch_library.hpp"

namespace shared_tensor::daemon {

namespace {

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

}  // namespace

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

}  // namespace shared_tensor::daemon
