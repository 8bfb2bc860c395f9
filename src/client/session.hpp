#pragma once

#include <memory>
#include <string>

#include "client/core.hpp"

namespace shared_tensor::client {

/// A session in the server, closed at its end. Shared by the copies of a Client.
struct Session {
    Session(std::shared_ptr<Core> owner, std::string id) : core(std::move(owner)), token(std::move(id)) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    /// Blocks for a short time; if the server can't be told, it ends the session by itself some minutes later.
    ~Session();

    std::shared_ptr<Core> core;
    std::string token;
};

}  // namespace shared_tensor::client
