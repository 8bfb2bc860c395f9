#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace shared_tensor::test {

/// Makes a folder in /tmp, mode 0700. The destructor removes it with all its files.
class TemporaryFolder {
public:
    TemporaryFolder() {
        char name[] = "/tmp/shared_tensor_test_XXXXXX";
        if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp failed");
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + '/' + name; }
    std::string write(const std::string& name, std::string_view text, mode_t mode = 0600) const {
        const std::string path = file(name);
        std::ofstream(path) << text;
        ::chmod(path.c_str(), mode);
        return path;
    }

private:
    std::string path_;
};

}  // namespace shared_tensor::test
