#include "base/system/host_identity.hpp"

#include <unistd.h>

#include <array>
#include <fstream>

namespace shared_tensor {

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return text;
}

std::string pid_namespace() {
    std::array<char, 64> text{};
    const ssize_t size = ::readlink("/proc/self/ns/pid", text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace shared_tensor
