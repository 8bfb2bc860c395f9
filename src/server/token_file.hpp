#pragma once

#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

namespace shared_tensor::server {

/// The tokens of a file: a line each, NAME:SECRET, then :admin or :allow=METHOD,PREFIX.* or both; '#' begins a comment.
/// A secret holds no colon, and no two names have the same one. The file must not be readable by others. Throws
/// std::invalid_argument that names the file and the line, and shows no secret.
std::vector<AccessToken> read_token_file(const std::string& path);

}  // namespace shared_tensor::server
