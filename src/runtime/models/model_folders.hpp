#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::models {

/// Folders whose TorchScript files may be loaded on request. Such a file is a program, so the operator chooses the
/// folders.
/// Thread safety: all methods from any thread.
class ModelFolders {
public:
    /// Throws std::invalid_argument for a folder that does not exist or that every user may write to.
    explicit ModelFolders(const std::vector<std::string>& folders);

    bool empty() const { return folders_.empty(); }
    struct Found {
        std::string path;       ///< empty: no such file, or rejected
        std::string rejection;  ///< why the file is rejected; empty if there is no such file
    };
    /// Finds `file`, e.g. "bottom.pt" or "v2/bottom.pt", in the first folder that has it. Files outside the folders
    /// ("..", absolute paths, links) are not found. A file is rejected if every user may write to it or to a folder on
    /// its path.
    Found find(std::string_view file) const;

private:
    std::vector<std::string> folders_;  ///< absolute, without links
};

}  // namespace shared_tensor::models
