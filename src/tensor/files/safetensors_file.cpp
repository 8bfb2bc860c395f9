#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/system/unique_fd.hpp"
#include "tensor/files/safetensors.hpp"

namespace shared_tensor::tensor {

namespace {

class File {
public:
    explicit File(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        struct stat status {};
        if (descriptor_.get() < 0 || ::fstat(descriptor_.get(), &status) != 0) fail();
        if (!S_ISREG(status.st_mode)) throw SafetensorsError(path + ": no regular file");
        size_ = static_cast<std::uint64_t>(status.st_size);
    }

    std::uint64_t size() const { return size_; }

    void read(std::uint64_t offset, std::byte* to, std::uint64_t bytes) const {
        constexpr std::uint64_t kAtOnce = std::uint64_t{256} << 20;
        while (bytes > 0) {
            const ssize_t got = ::pread(descriptor_.get(), to, static_cast<std::size_t>(std::min(bytes, kAtOnce)),
                                        static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail();
            if (got == 0) throw SafetensorsError(path_ + ": became shorter while it was read");
            offset += static_cast<std::uint64_t>(got);
            to += got;
            bytes -= static_cast<std::uint64_t>(got);
        }
    }

private:
    [[noreturn]] void fail() const { throw std::system_error(errno, std::generic_category(), path_); }

    const std::string& path_;
    UniqueFd descriptor_;
    std::uint64_t size_ = 0;
};

SafetensorsHeader read_header(const File& file) {
    if (file.size() < 8) throw SafetensorsError("not a valid safetensors file: it ends inside its header");
    std::array<std::byte, 8> prefix{};
    file.read(0, prefix.data(), prefix.size());
    std::string json(static_cast<std::size_t>(safetensors_json_size(prefix, file.size())), '\0');
    file.read(8, reinterpret_cast<std::byte*>(json.data()), json.size());
    return parse_safetensors_header(json, file.size() - 8 - json.size());
}

}  // namespace

SafetensorsContent read_safetensors_file(const std::string& path, const TakeBlock& take) {
    const File file(path);
    SafetensorsHeader header = read_header(file);
    Manifest placed = header.manifest;
    const std::uint64_t bytes = lay_out(placed);
    TensorSet set = make_set(std::move(placed), bytes, take);
    for (const auto& [name, member] : set.manifest) {
        if (member.bytes == 0) continue;
        std::byte* to = writable_data(set) + member.offset;
        file.read(header.size + header.manifest.find(name)->second.offset, to, member.bytes);
        if (has_odd_bools(member.dtype, member.shape, {}, to))
            throw SafetensorsError(path + ": it has bools that are neither 0 nor 1");
    }
    return {std::move(set), std::move(header.metadata)};
}

SafetensorsContent view_safetensors(std::span<std::byte> file, std::shared_ptr<const void> owner) {
    if (file.size() < 8)
        throw SafetensorsError("not a valid safetensors file: it has only " + std::to_string(file.size()) + " bytes");
    const auto json_bytes = static_cast<std::size_t>(safetensors_json_size(file.first<8>(), file.size()));
    const std::span<std::byte> data = file.subspan(8 + json_bytes);
    const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, json_bytes);
    SafetensorsHeader header = parse_safetensors_header(json, data.size());
    for (const auto& [name, member] : header.manifest) {
        if (has_odd_bools(member.dtype, member.shape, {}, data.data() + member.offset))
            throw SafetensorsError(name + " has bools that are neither 0 nor 1");
    }
    return {set_in({data.data(), std::move(owner)}, data.size(), std::move(header.manifest)),
            std::move(header.metadata)};
}

}  // namespace shared_tensor::tensor
