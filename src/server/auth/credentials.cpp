#include "server/auth/credentials.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/log/log.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

std::vector<AccessToken> Credentials::tokens_of(const ServerOptions& options) {
    std::vector<AccessToken> tokens = options.tokens;
    if (options.token_file.empty()) return tokens;
    for (AccessToken& token : read_token_file(options.token_file))
        tokens.push_back(std::move(token));
    return tokens;
}

std::shared_ptr<const net::TlsServer> Credentials::tls_of(const ServerOptions& options) {
    const TlsOptions& files = options.tls;
    if (files.certificate.empty() != files.key.empty())
        throw std::invalid_argument("TLS needs both a certificate and its key");
    if (files.certificate.empty()) {
        if (!files.authorities.empty())
            throw std::invalid_argument("certificates of clients need TLS: give the server a certificate and its key");
        return nullptr;
    }
    return net::TlsServer::load(files);
}

Credentials::Credentials(const ServerOptions& options)
    : options_(options),
      tokens_({options.token_file}),
      tls_({options.tls.certificate, options.tls.key, options.tls.authorities}) {}

bool Credentials::sweep(SteadyTime now, Access& access, const UseTls& use_tls) {
    if (now - looked_ < kLookEvery) return false;
    looked_ = now;
    bool revoked = false;
    const auto reload = [](const char* what, auto load) {
        try {
            load();
            log::info("the ", what, " changed, and was read again");
        } catch (const std::exception& error) {
            log::error("the ", what, " changed and cannot be used; the earlier one stays in use: ", error.what());
        }
    };
    if (tokens_.changed()) reload("token file", [&] { revoked = access.use_tokens(tokens_of(options_)); });
    if (tls_.changed()) reload("TLS certificate", [&] { use_tls(tls_of(options_)); });
    return revoked;
}

namespace {

constexpr std::string_view kAdmin = "admin", kAllow = "allow=";

[[noreturn]] void reject_file(const std::string& path, const std::string& why) {
    throw std::invalid_argument(path + ": " + why);
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(separator, at), text.size());
        parts.emplace_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

/// Whether an entry such as "add" or "tensor.*" is valid.
bool is_method(const std::string& entry) {
    const std::size_t star = entry.find('*');
    return !entry.empty() && (star == std::string::npos || star + 1 == entry.size());
}

/// Reads "admin" or "allow=METHOD,PREFIX.*". Errors show nothing of the line: it may be a part of a secret.
void add_attribute(AccessToken& token, std::string_view attribute, const std::string& where) {
    if (attribute == kAdmin) {
        if (token.admin) reject_file(where, "admin is there twice");
        token.admin = true;
    } else if (attribute.starts_with(kAllow)) {
        if (!token.allow.empty()) reject_file(where, "allow= is there twice: write all methods behind one");
        token.allow = split(attribute.substr(kAllow.size()), ',');
        if (!std::all_of(token.allow.begin(), token.allow.end(), is_method))
            reject_file(where, "allow= takes methods separated by commas; a * may only end one: allow=add,tensor.*");
    } else {
        reject_file(where,
                    "only :admin and :allow=METHOD,PREFIX.* may follow NAME:SECRET, and a secret holds no colon");
    }
}

/// Reads "NAME:SECRET" and then attributes, each after a colon.
AccessToken read_line(const std::string& text, const std::string& where) {
    const std::vector<std::string> parts = split(text, ':');
    if (parts.size() < 2 || parts.front().empty())
        reject_file(where, "each line must be NAME:SECRET, then :admin or :allow=METHOD,PREFIX.*");
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    if (const std::string& secret = parts[1]; !secret.empty() && (is_blank(secret.front()) || is_blank(secret.back())))
        reject_file(where, "a secret cannot begin or end with a blank, because HTTP removes blanks around a header");
    AccessToken token{parts[0], parts[1], false};
    for (std::size_t i = 2; i < parts.size(); ++i)
        add_attribute(token, parts[i], where);
    return token;
}

}  // namespace

std::vector<AccessToken> read_token_file(const std::string& path) {
    struct stat status {};
    std::ifstream file(path);
    if (!file || ::stat(path.c_str(), &status) != 0) reject_file(path, "the token file cannot be read");
    // Root may give it to the group of the process, as secret volumes of Kubernetes do.
    const mode_t forbidden = status.st_uid == 0 && ::geteuid() != 0 ? 037 : 077;
    if ((status.st_mode & forbidden) != 0) reject_file(path, "the token file is readable by others: chmod 600 it");
    std::vector<AccessToken> tokens;
    std::unordered_set<std::string> names;
    std::unordered_map<std::string, std::string> secrets;  // with the name of the token
    std::size_t line = 0;
    for (std::string text; std::getline(file, text);) {
        ++line;
        if (text.ends_with('\r')) text.pop_back();
        if (text.empty() || text.front() == '#') continue;
        const std::string where = path + ", line " + std::to_string(line);
        AccessToken token = read_line(text, where);
        if (!names.insert(token.name).second) reject_file(where, "there is a token \"" + token.name + "\" already");
        const auto [same, is_new] = secrets.try_emplace(token.secret, token.name);
        if (!is_new)
            reject_file(where, '"' + token.name + "\" has the secret of \"" + same->second + "\": give each its own");
        tokens.push_back(std::move(token));
    }
    if (file.bad()) reject_file(path, "the token file could not be read to its end");
    if (tokens.empty()) reject_file(path, "the token file holds no token");
    return tokens;
}

}  // namespace shared_tensor::server
