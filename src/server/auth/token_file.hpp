#pragma once

#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

namespace shared_tensor::server {

/// Reads the tokens of a file. Each line is NAME:SECRET, followed by :admin or :allow=METHOD,PREFIX.* or both; a line
/// that begins with '#' is a comment. A secret contains no colon, and each name needs a secret of its own. Other users
/// must not be able to read the file. Throws std::invalid_argument that names the file and the line, and shows no
/// secret.
std::vector<AccessToken> read_token_file(const std::string& path);

}  // namespace shared_tensor::server
