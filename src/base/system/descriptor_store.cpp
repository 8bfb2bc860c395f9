#include "base/system/descriptor_store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log/log.hpp"
#include "base/system/unix_listener.hpp"

namespace shared_tensor {

namespace {

constexpr int kPatienceMs = 5'000;

/// The number of a name that keep() chose; 0 for other names.
std::size_t number_of(std::string_view name) {
    std::size_t number = 0;
    name.remove_prefix(std::min(name.size(), DescriptorStore::kPrefix.size()));
    std::from_chars(name.data(), name.data() + name.size(), number);
    return number;
}

}  // namespace

UniqueFd connect_to_manager(const std::string& path) {
    sockaddr_un address = unix_address(path);
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // a name that is in no file system
    UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
        throw std::system_error(errno, std::generic_category(), "connect to the service manager");
    const timeval patience{kPatienceMs / 1000, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return socket;
}

int send_to_manager(const UniqueFd& socket, const std::string& text, int descriptor) {
    iovec part{const_cast<char*>(text.data()), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    if (descriptor >= 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

struct DescriptorStore::Stored::Manager {
    struct State {
        std::size_t held = 0;
        std::size_t last_number = 0;
        bool gone = false;
        bool serves = false;  ///< between begin() and close()
    };

    Manager(const std::string& path, std::size_t the_most) : socket(connect_to_manager(path)), most(the_most) {}

    /// Returns 0 or the error. ECONNREFUSED: the manager has ended.
    int tell(const std::string& text, int descriptor = -1) {
        const int error = send_to_manager(socket, text, descriptor);
        if (error != ECONNREFUSED && error != ENOTCONN) return error;
        const bool is_new = state.with([](State& now) { return !std::exchange(now.gone, true); });
        if (is_new) {
            log::error(
                "the service manager that keeps the state of this server has ended: named tensors, tasks and "
                "idempotency keys end with this process now");
        }
        return 0;
    }
    void drop(const std::string& name) {
        // A manager that stands still keeps the descriptor until the next start, and it counts.
        if (tell("FDSTOREREMOVE=1\nFDNAME=" + name) == 0) state.with([](State& now) { --now.held; });
    }
    /// Waits until the manager has read all messages: it then closes its copy of a pipe's end (sd_notify_barrier(3)).
    bool wait_for_manager() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
        const UniqueFd mine(ends[0]);
        UniqueFd its(ends[1]);
        if (tell("BARRIER=1", its.get()) != 0) return false;
        its.reset();
        pollfd end{mine.get(), POLLIN, 0};
        int ready = 0;
        do {
            ready = ::poll(&end, 1, kPatienceMs);
        } while (ready < 0 && errno == EINTR);
        return ready == 1;
    }

    const UniqueFd socket;
    const std::size_t most;
    Guarded<State> state{};
};

DescriptorStore::Stored::Stored(std::shared_ptr<Manager> manager, std::string name,
                                std::shared_ptr<const UniqueFd> descriptor)
    : manager_(std::move(manager)), name_(std::move(name)), descriptor_(std::move(descriptor)) {}

DescriptorStore::Stored::~Stored() {
    if (manager_->state.get(&Manager::State::serves)) manager_->drop(name_);
}

DescriptorStore::DescriptorStore(const std::string& socket, std::size_t most, std::map<std::string, UniqueFd> given)
    : manager_(std::make_shared<Manager>(socket, most)), given_(std::move(given)) {
    given_.with([&](const auto& all) {
        manager_->state.with([&](Manager::State& state) {
            state.held = all.size();
            for (const auto& [name, descriptor] : all)
                state.last_number = std::max(state.last_number, number_of(name));
        });
    });
}

DescriptorStore::~DescriptorStore() { close(); }

DescriptorStore::StoredPointer DescriptorStore::keep(std::shared_ptr<const UniqueFd> descriptor, std::string name) {
    const bool has_room = manager_->state.with([&](Manager::State& state) {
        if (state.held >= manager_->most) return false;
        ++state.held;
        if (name.empty()) name = std::string(kPrefix) + std::to_string(++state.last_number);
        return true;
    });
    if (!has_room) {
        throw NotStored("the service manager keeps " + std::to_string(manager_->most) +
                        " descriptors for this server, and may keep no more: raise --descriptors of "
                        "shared-tensor-keeper, or FileDescriptorStoreMax= of the unit");
    }
    StoredPointer stored(new Stored(manager_, std::move(name), std::move(descriptor)));
    const std::string message = "FDSTORE=1\nFDPOLL=0\nFDNAME=" + stored->name();
    if (manager_->tell(message, stored->descriptor()->get()) != 0 || !manager_->wait_for_manager())
        throw NotStored("the service manager, which keeps the state of this server, did not answer within 5 s");
    return stored;
}

DescriptorStore::StoredPointer DescriptorStore::take(const std::string& name) {
    return given_.with([&](auto& given) -> StoredPointer {
        const auto found = given.find(name);
        if (found == given.end()) return nullptr;
        auto descriptor = std::make_shared<const UniqueFd>(std::move(found->second));
        given.erase(found);
        return StoredPointer(new Stored(manager_, name, std::move(descriptor)));
    });
}

void DescriptorStore::begin() {
    manager_->state.with([](Manager::State& state) { state.serves = true; });
    given_.with([&](auto& given) {
        for (const auto& [name, descriptor] : given)
            manager_->drop(name);
        given.clear();
    });
}

DescriptorStore::Use DescriptorStore::use() const {
    return manager_->state.with([&](const Manager::State& state) {
        return Use{state.held, manager_->most, state.gone};
    });
}

void DescriptorStore::close() {
    manager_->state.with([](Manager::State& state) { state.serves = false; });
}

}  // namespace shared_tensor
