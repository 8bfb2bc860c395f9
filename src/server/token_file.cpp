#include "server/token_file.hpp"

#include <sys/stat.h>

#include <fstream>
#include <stdexcept>
#include <string_view>
#include <unordered_set>

namespace shared_tensor::server {

namespace {

constexpr std::string_view kAdmin = ":admin", kAllow = ":allow=";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::invalid_argument(path + ": " + why);
}

/// "add,tensor.*"; nothing when an entry is none.
std::vector<std::string> split_methods(std::string_view list) {
    std::vector<std::string> methods;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t comma = std::min(list.find(',', at), list.size());
        const std::string_view method = list.substr(at, comma - at);
        const std::size_t star = method.find('*');
        if (method.empty() || (star != std::string_view::npos && star + 1 != method.size())) return {};
        methods.emplace_back(method);
        at = comma + 1;
    }
    return methods;
}

/// What stands behind the secret, from the end; a secret may hold colons of its own.
void take_attributes(AccessToken& token, const std::string& where) {
    while (true) {
        std::string& secret = token.secret;
        if (!token.admin && secret.ends_with(kAdmin)) {
            token.admin = true;
            secret.resize(secret.size() - kAdmin.size());
            continue;
        }
        const std::size_t allow = token.allow.empty() ? secret.rfind(kAllow) : std::string::npos;
        if (allow == std::string::npos) return;
        token.allow = split_methods(std::string_view(secret).substr(allow + kAllow.size()));
        if (token.allow.empty())
            refuse(where, "allow= takes methods separated by commas; a * may only end one: allow=add,tensor.*");
        secret.resize(allow);
    }
}

}  // namespace

std::vector<AccessToken> read_token_file(const std::string& path) {
    struct stat status {};
    std::ifstream file(path);
    if (!file || ::stat(path.c_str(), &status) != 0) refuse(path, "the token file cannot be read");
    if ((status.st_mode & 077) != 0) refuse(path, "the token file is readable by others: chmod 600 it");
    std::vector<AccessToken> tokens;
    std::unordered_set<std::string> names;
    std::size_t line = 0;
    for (std::string text; std::getline(file, text);) {
        ++line;
        if (text.ends_with('\r')) text.pop_back();
        if (text.empty() || text.front() == '#') continue;
        const std::string where = path + ", line " + std::to_string(line);
        const std::size_t colon = text.find(':');
        if (colon == 0 || colon == std::string::npos)
            refuse(where, "each line must be NAME:SECRET, then :admin or :allow=METHOD,PREFIX.*");
        AccessToken token{text.substr(0, colon), text.substr(colon + 1), false};
        take_attributes(token, where);
        if (!names.insert(token.name).second) refuse(where, "there is a token \"" + token.name + "\" already");
        tokens.push_back(std::move(token));
    }
    if (file.bad()) refuse(path, "the token file could not be read to its end");
    if (tokens.empty()) refuse(path, "the token file holds no token");
    return tokens;
}

}  // namespace shared_tensor::server
