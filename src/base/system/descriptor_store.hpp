#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor {

/// Something cannot outlive the process: there is no room for it, or it is not in memory that can. what() is for
/// people.
class NotStored : public std::bad_alloc {
public:
    explicit NotStored(std::string reason) : reason_(std::make_shared<const std::string>(std::move(reason))) {}
    const char* what() const noexcept override { return reason_->c_str(); }

private:
    std::shared_ptr<const std::string> reason_;  // shared, so that copying the exception does not throw
};

/// Connects to the socket of a service manager (NOTIFY_SOCKET, sd_notify(3)). Throws std::system_error.
UniqueFd connect_to_manager(const std::string& path);
/// Sends a message, with a descriptor unless it is -1. Blocks for at most 5 s. Returns 0 or the error.
int send_to_manager(const UniqueFd& socket, const std::string& text, int descriptor = -1);

/// Descriptors that a service manager holds for the next process of this service: systemd's descriptor store (FDSTORE=1
/// in sd_notify(3)), or shared-tensor-keeper, which has the same protocol. So what the descriptors refer to outlives
/// this process. If the manager ends, the store loses all descriptors and from then on does nothing.
/// Thread safety: all methods from any thread. keep() blocks until the manager has answered, at most 5 s.
class DescriptorStore {
public:
    /// All names begin with this.
    static constexpr std::string_view kPrefix = "kept-";

    /// `socket`: NOTIFY_SOCKET. `most`: how many descriptors the manager takes. `given`: by name, what it held for an
    /// earlier process. Throws std::system_error.
    DescriptorStore(const std::string& socket, std::size_t most, std::map<std::string, UniqueFd> given);
    ~DescriptorStore();

    /// A descriptor that the manager holds as long as this object exists; longer if the process ends before, or if the
    /// object ends before begin() or after close().
    class Stored {
    public:
        Stored(const Stored&) = delete;
        Stored& operator=(const Stored&) = delete;
        ~Stored();
        const std::string& name() const { return name_; }
        const std::shared_ptr<const UniqueFd>& descriptor() const { return descriptor_; }

    private:
        friend class DescriptorStore;
        struct Manager;
        Stored(std::shared_ptr<Manager> manager, std::string name, std::shared_ptr<const UniqueFd> descriptor);
        const std::shared_ptr<Manager> manager_;
        const std::string name_;
        const std::shared_ptr<const UniqueFd> descriptor_;
    };
    using StoredPointer = std::shared_ptr<const Stored>;

    /// Gives the manager a copy of the descriptor. Empty name: one that no other descriptor has. Throws NotStored,
    /// std::bad_alloc.
    StoredPointer keep(std::shared_ptr<const UniqueFd> descriptor, std::string name = {});
    /// What the manager held for an earlier process, once. Null if it held no such descriptor.
    StoredPointer take(const std::string& name);
    /// This process serves: the manager closes the descriptors of earlier processes that were not taken.
    void begin();

    struct Use {
        std::size_t descriptors = 0, most = 0;
        bool gone = false;  ///< the manager has ended
    };
    Use use() const;
    /// From now on the manager holds what it holds: the process ends, and the next process needs all of it.
    void close();

private:
    using Manager = Stored::Manager;
    const std::shared_ptr<Manager> manager_;
    Guarded<std::map<std::string, UniqueFd>> given_;
};

}  // namespace shared_tensor
