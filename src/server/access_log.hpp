#pragma once

#include <string>
#include <string_view>

#include "base/concurrency/clock.hpp"
#include "base/log/line_file.hpp"
#include "base/log/log.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::server {

/// The line of a request for --access-log, without a line break. As text it begins as in the Common Log Format of web
/// servers. `principal`: who called; empty: the request was rejected before that was known. docs/logs.md describes it.
std::string access_line(log::Format format, const net::ServedRequest& request, std::string_view principal,
                        SystemTime time);

/// Writes the line of a request that was served now, in the format of the log. Does not block.
void write_access_line(log::LineFile& file, const net::ServedRequest& request, std::string_view principal) noexcept;

}  // namespace shared_tensor::server
