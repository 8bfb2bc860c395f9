#pragma once

#include <memory>
#include <string>

#include "base/system/of_this_process.hpp"
#include "client/call/core.hpp"

namespace shared_tensor::client {

/// A session in the server; the destructor closes it. The copies of a Client share it. A forked child opens its own
/// session when it first needs one, and closes only that session.
/// Thread safety: token() from any thread.
class Session {
public:
    /// Opens the session. Blocks. Throws as calls do.
    explicit Session(std::shared_ptr<Core> core);

    /// The token of this process's session. In a forked child the first call opens the child's session: it blocks, and
    /// throws as calls do.
    const std::string& token() const;

private:
    /// The session of one process. The destructor blocks for 2 s at most. If it cannot reach the server, the server
    /// ends the session by itself some minutes later.
    struct Opened {
        explicit Opened(Core& owner);
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        ~Opened();

        Core& core;
        std::string token;
    };

    const std::shared_ptr<Core> core_;
    mutable OfThisProcess<Opened> opened_;
};

}  // namespace shared_tensor::client
