#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::models {

/// Folders whose TorchScript files may be loaded on request. Such a file is a program, so the operator names them.
/// Thread safety: all methods from any thread.
class ModelFolders {
public:
    /// Throws std::invalid_argument for one that is not there, or that everybody may write to.
    explicit ModelFolders(const std::vector<std::string>& folders);

    bool empty() const { return folders_.empty(); }
    struct Found {
        std::string path;   ///< empty: none
        std::string fault;  ///< why not; "" where there is none of that name
    };
    /// `file`, "bottom.pt" or "v2/bottom.pt", in the first folder that has it. What lies outside, by "..", by being
    /// absolute, or behind a link, is not there; what everybody may write to, or a folder above it, is refused.
    Found find(std::string_view file) const;

private:
    std::vector<std::string> folders_;  ///< absolute, without links
};

}  // namespace shared_tensor::models
