#include "help.hpp"

#include <array>
#include <utility>

namespace shared_tensor::daemon {

namespace {

using server::Option;

constexpr std::size_t kWidth = 100, kHelpColumn = 29;

constexpr std::string_view kIntroduction =
    "Shares C++ functions, models and tensors with other processes: JSON-RPC 2.0 over HTTP.\n"
    "Usage: shared-tensor-server [doctor] [OPTION...]   (doctor: checks what works on this host)\n"
    "An option may also come from the environment (SHARED_TENSOR_UNIX_SOCKET for --unix-socket) or from\n"
    "--config; flags win over environment over file. Times: 500ms, 30s, 5m, 1h. Sizes: 65536, 64K, 2G.\n";

constexpr std::string_view kOther = "Other";
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers{
    {{"--config FILE", "JSON file with any of these options"},
     {"--print-config", "print the options in force as JSON and end"},
     {"--version", "print the version and end"},
     {"-h, --help", "print the common options and end"},
     {"--help-all", "print all options and end"}}};

template <std::size_t N>
std::string in_units(std::size_t value, const std::array<std::pair<std::size_t, const char*>, N>& units) {
    for (const auto& [unit, name] : units) {
        if (value > 0 && value % unit == 0) return std::to_string(value / unit) + name;
    }
    return std::to_string(value);
}

/// Appends `what`, and `text` in the column beside it, broken into lines of at most kWidth.
void add_lines(std::string& out, std::string_view what, std::string_view text) {
    std::string line = "  " + std::string(what);
    line.resize(std::max(line.size() + 1, kHelpColumn), ' ');
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        if (line.size() + 1 + (end - at) > kWidth) {
            out += line + '\n';
            line.assign(kHelpColumn, ' ');
        }
        if (line.back() != ' ') line += ' ';
        line += text.substr(at, end - at);
        at = end + 1;
    }
    out += line + '\n';
}

std::string_view argument_of(const Option& option) {
    struct Name {
        std::string_view operator()(Option::Text) const { return " TEXT"; }
        std::string_view operator()(Option::List) const { return " TEXT"; }
        std::string_view operator()(Option::Flag) const { return ""; }
        std::string_view operator()(Option::Count) const { return " N"; }
        std::string_view operator()(Option::Integer) const { return " N"; }
        std::string_view operator()(Option::Bytes) const { return " SIZE"; }
        std::string_view operator()(Option::Time) const { return " TIME"; }
    };
    return std::visit(Name(), option.value);
}

}  // namespace

std::string default_text(const Option& option) {
    struct Text {
        std::string operator()(Option::Text value) const { return *value; }
        std::string operator()(Option::List) const { return {}; }
        std::string operator()(Option::Flag value) const { return *value ? "on" : "off"; }
        std::string operator()(Option::Count count) const { return std::to_string(*count.value); }
        std::string operator()(Option::Integer number) const { return std::to_string(*number.value); }
        std::string operator()(Option::Bytes bytes) const {
            return in_units<3>(*bytes.value, {{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}}});
        }
        std::string operator()(Option::Time time) const {
            const auto ms = static_cast<std::size_t>(time->count());
            return in_units<4>(ms, {{{3'600'000, "h"}, {60'000, "m"}, {1'000, "s"}, {1, "ms"}}});
        }
    };
    return std::visit(Text(), option.value);
}

std::string help_text(const std::vector<Option>& defaults, bool all) {
    std::string text(kIntroduction), section;
    for (const Option& option : defaults) {
        if (!all && !option.common) continue;
        if (section != option.section) text.append(option.section).append(":\n");
        section = option.section;
        const std::string shown = default_text(option);
        const bool turns_off = option.is_flag() && shown == "on", has_default = !shown.empty() && shown != "off";
        add_lines(text, (turns_off ? "--[no-]" : "--") + std::string(option.name) + std::string(argument_of(option)),
                  std::string(option.help) + (has_default ? " [" + shown + ']' : ""));
    }
    text.append(kOther).append(":\n");
    for (const auto& [what, help] : kOthers)
        add_lines(text, what, help);
    text.pop_back();
    return text;
}

}  // namespace shared_tensor::daemon
