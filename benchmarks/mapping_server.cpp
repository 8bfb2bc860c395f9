#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "bytes.hpp"
#include "servers.hpp"
#include "sockets.hpp"

namespace bench {

namespace {

struct Memory {
    int descriptor;
    std::size_t size;
};

Memory make_memory(std::size_t size) {
    const int descriptor = ::memfd_create("bench", MFD_CLOEXEC);
    require(descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(size)) == 0, "memfd_create");
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    require(mapped != MAP_FAILED, "mmap");
    std::fill_n(static_cast<std::int64_t*>(mapped), size / sizeof(std::int64_t), 1);
    return {descriptor, size};
}

}  // namespace

int serve_mapping(const Arguments& role) {
    const Memory memory = make_memory(std::strtoull(role.at(2).c_str(), nullptr, 10));
    const int listener = listen_unix(role.at(1));
    announce(role.at(1));
    const Socket client(::accept(listener, nullptr, nullptr));
    send_descriptor(client.fd(), memory.descriptor);
    for (;;) {
        std::uint64_t question = 0;
        const std::uint64_t offset = 0;
        read_all(client.fd(), &question, sizeof question);
        write_all(client.fd(), &offset, sizeof offset);
    }
}

}  // namespace bench
