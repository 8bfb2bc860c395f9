#pragma once

#include <string>

namespace shared_tensor::server {

/// Whose request it is, as far as the server believes it.
struct Principal {
    std::string name;  ///< "uid:1000", "token:NAME", "anyone" (insecure)
    bool admin = false;
};

}  // namespace shared_tensor::server
