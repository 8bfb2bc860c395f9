#pragma once

#include <span>
#include <string_view>

#include "net/message/message.hpp"

// The dashboard: a page at "/", its files under "/dashboard/", and the client library for web pages,
// "/shared_tensor.js". The build puts these files into the library (cmake/EmbedFiles.cmake), so there is nothing to
// find where it runs.

namespace shared_tensor::server {

struct DashboardFile {
    std::string_view path;    ///< of the URL
    std::string_view text;    ///< UTF-8
    std::string_view digest;  ///< of the text
};
/// All files. Made by the build.
std::span<const DashboardFile> dashboard_files();

bool is_dashboard_path(std::string_view path);

/// The answer to a request for such a path: the file, compressed if the client takes gzip; 304 if the client has it;
/// 405.
net::Response dashboard_file(const net::RequestHead& head);

}  // namespace shared_tensor::server
