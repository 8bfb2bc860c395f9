#pragma once

#include <memory>
#include <string>

#include "client/core.hpp"
#include "util/of_this_process.hpp"

namespace shared_tensor::client {

/// A session in the server, closed at its end. Shared by the copies of a Client. A forked child has a session of its
/// own, opened when it first needs one, and closes only that one.
/// Thread safety: token() from any thread.
class Session {
public:
    /// Opens it. Blocks. Throws as calls do.
    explicit Session(std::shared_ptr<Core> core);

    /// Its name in this process. In a forked child the first call opens the child's session: it blocks then, and throws
    /// as calls do.
    const std::string& token() const;

private:
    /// That of one process. The end of it blocks for a short time; if the server can't be told, it ends the session by
    /// itself some minutes later.
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
