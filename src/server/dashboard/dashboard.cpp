#include "server/dashboard/dashboard.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes/compression.hpp"
#include "base/concurrency/guarded.hpp"
#include "net/message/fields.hpp"
#include "protocol/json_rpc/error.hpp"
#include "server/rpc/reply.hpp"

namespace shared_tensor::server {

namespace {

/// No script or style in the page's own text, nothing from another origin. Pictures and sounds of results are blobs.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const DashboardFile* find(std::string_view path) {
    const auto files = dashboard_files();
    const auto file = std::find_if(files.begin(), files.end(), [&](const auto& one) { return one.path == path; });
    return file != files.end() ? &*file : nullptr;
}

const char* type_of(std::string_view path) {
    constexpr std::array<std::pair<std::string_view, const char*>, 4> kTypes{{{".js", "text/javascript; charset=utf-8"},
                                                                              {".css", "text/css; charset=utf-8"},
                                                                              {".svg", "image/svg+xml"},
                                                                              {".ts", "text/plain; charset=utf-8"}}};
    for (const auto& [ending, type] : kTypes) {
        if (path.ends_with(ending)) return type;
    }
    return path.ends_with(".txt") ? "text/plain; charset=utf-8" : "text/html; charset=utf-8";
}

/// Compressed once, when it is first asked for. A compressed file fits into the send buffer of a new connection: an
/// untrusted client, which may be a browser before its login, gets no more than that without waiting.
net::BodyPart compressed(const DashboardFile& file) {
    static Guarded<std::map<std::string_view, CompressedBytes>> all;
    return all.with([&](auto& known) -> net::BodyPart {
        auto found = known.find(file.path);
        if (found == known.end()) {
            auto made = compress_if_smaller(std::as_bytes(std::span(file.text)), {Coding::gzip, 9});
            found = known.emplace(file.path, made ? std::move(*made) : CompressedBytes()).first;
        }
        return {found->second.bytes(), found->second.owner};
    });
}

void add_headers(net::Headers& headers, std::string etag) {
    headers.add("ETag", std::move(etag));
    headers.add("Cache-Control", "no-cache");  // ask each time whether it has changed
    headers.add("Vary", "Accept-Encoding");
    headers.add("Content-Security-Policy", kPolicy);
    headers.add("X-Content-Type-Options", "nosniff");
    headers.add("Referrer-Policy", "no-referrer");
    headers.add("Cross-Origin-Opener-Policy", "same-origin");
    headers.add("Cross-Origin-Resource-Policy", "same-origin");
}

}  // namespace

bool is_dashboard_path(std::string_view path) { return find(path) != nullptr; }

net::Response dashboard_file(const net::RequestHead& head) {
    if (head.method != "GET" && head.method != "HEAD") {
        net::Response response = error_response(405, json_rpc::invalid_request("this path takes GET, HEAD"));
        response.headers.add("Allow", "GET, HEAD");
        return response;
    }
    const DashboardFile& file = *find(head.path);
    net::Response response;
    const std::string etag = '"' + std::string(file.digest) + '"';
    add_headers(response.headers, "W/" + etag);  // weak: the same for the compressed form
    if (const auto known = head.headers.find("If-None-Match"); known && net::names_etag(*known, etag, true)) {
        response.status = 304;
        return response;
    }
    response.content_type = type_of(file.path);
    const auto accepted = head.headers.find("Accept-Encoding");
    if (accepted && accepts(*accepted, Coding::gzip)) response.parts = {compressed(file)};
    if (net::size_of(response.parts) > 0) {
        response.headers.add("Content-Encoding", "gzip");
    } else {
        response.parts = {{std::as_bytes(std::span(file.text)), nullptr}};
    }
    return response;
}

}  // namespace shared_tensor::server
