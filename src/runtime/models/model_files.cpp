// The files of models: what the operator writes on the command line, and the folders for model.load.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "runtime/models/model_table.hpp"

namespace shared_tensor::models {

namespace {

namespace fs = std::filesystem;

bool is_plain(std::string_view file) {
    if (file.empty() || file.find('\0') != std::string_view::npos) return false;
    const fs::path path(file);
    if (path.is_absolute()) return false;
    for (const fs::path& part : path) {
        if (part.empty() || part == "." || part == "..") return false;
    }
    return true;
}

constexpr const char* kAnybodys = "may be written to by everybody, or its folder may: chmod o-w";

bool is_anybodys(const fs::path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

bool is_below(const fs::path& path, const fs::path& folder) {
    const fs::path relative = path.lexically_relative(folder);
    return !relative.empty() && *relative.begin() != ".." && *relative.begin() != ".";
}

constexpr std::array<std::pair<State, std::string_view>, 4> kStates = {
    {{State::copied, "yes"}, {State::deep, "deep"}, {State::shared, "shared"}, {State::none, "no"}}};

State state_in(std::string_view word, const std::string& argument) {
    if (const auto state = parse_state(word)) return *state;
    throw std::invalid_argument("model \"" + argument + "\": stateful is yes, deep, shared or no");
}

bool parse_grad(std::string_view word, const std::string& argument) {
    if (word == "yes") return true;
    if (word == "no") return false;
    throw std::invalid_argument("model \"" + argument + "\": grad is yes or no");
}

template <class Number>
Number parse_number(std::string_view word, const std::string& argument, const char* expected) {
    Number number{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size()) return number;
    throw std::invalid_argument("model \"" + argument + "\": " + expected);
}

/// Parses the text after the last '?' if all of it are options: a path may contain a '?' too.
void take_options(ModelArgument& result, const std::string& argument) {
    const std::size_t start = result.path.rfind('?');
    if (start == std::string::npos) return;
    LoadOptions options;
    for (std::string_view rest = std::string_view(result.path).substr(start + 1); !rest.empty();) {
        const std::string_view one = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        const std::size_t equals = one.find('=');
        const std::string_view name = one.substr(0, equals);
        if (equals == std::string_view::npos) return;
        const std::string_view value = one.substr(equals + 1);
        if (name == "stateful") {
            options.state = state_in(value, argument);
        } else if (name == "device") {
            options.device = value;
        } else if (name == "dtype") {
            options.dtype = value;
        } else if (name == "grad") {
            options.grad = parse_grad(value, argument);
        } else if (name == "batch") {
            options.batch_rows =
                parse_number<std::size_t>(value, argument, "batch is a number of rows, as in batch=32");
        } else if (name == "batch_wait_ms") {
            options.batch_wait = std::chrono::milliseconds(parse_number<std::int64_t>(
                value, argument, "batch_wait_ms is a number of milliseconds, as in batch_wait_ms=5"));
        } else {
            return;
        }
    }
    result.options = std::move(options);
    result.path.resize(start);
}

}  // namespace

ModelFolders::ModelFolders(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
        const auto reject = [&](const std::string& why) {
            throw std::invalid_argument("model folder " + folder + ": " + why);
        };
        std::error_code error;
        const fs::path absolute = fs::canonical(folder, error);
        if (error) reject(error.message());
        struct stat status {};
        if (::stat(absolute.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) reject("not a folder");
        if (is_anybodys(absolute)) reject("writable by everybody: chmod o-w it");
        folders_.push_back(absolute);
    }
}

ModelFolders::Found ModelFolders::find(std::string_view file) const {
    if (!is_plain(file)) return {};
    for (const std::string& folder : folders_) {
        std::error_code error;
        const fs::path path = fs::canonical(fs::path(folder) / file, error);
        if (error || !is_below(path, folder)) continue;
        for (fs::path part = path;; part = part.parent_path()) {
            if (is_anybodys(part)) return {{}, kAnybodys};
            if (part == folder) return {path, {}};
        }
    }
    return {};
}

std::optional<State> parse_state(std::string_view word) {
    for (const auto& [state, known] : kStates) {
        if (known == word) return state;
    }
    return std::nullopt;
}

std::string_view word_of(State state) {
    for (const auto& [known, word] : kStates) {
        if (known == state) return word;
    }
    return {};
}

ModelArgument parse_model_argument(const std::string& argument) {
    ModelArgument result;
    const auto equals = argument.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
        throw std::invalid_argument("model \"" + argument + "\": write name=path, or name=path?stateful=deep");
    }
    result.name = argument.substr(0, equals);
    result.path = argument.substr(equals + 1);
    take_options(result, argument);
    return result;
}

}  // namespace shared_tensor::models
