// The manual page of a program, in the language of man(7).

#include <shared_tensor/version.hpp>

#include "description.hpp"

namespace shared_tensor::program {

namespace {

/// The text without meaning for man: no escape, no request at its beginning, hyphens that can be searched and copied.
std::string plain(std::string_view text) {
    std::string result;
    if (text.starts_with('.') || text.starts_with('\'')) result = "\\&";
    for (const char c : text) {
        if (c == '\\') {
            result += "\\e";
        } else if (c == '-') {
            result += "\\-";
        } else {
            result += c;
        }
    }
    return result;
}

std::string upper(std::string text) {
    for (char& c : text)
        c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return text;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return text.empty() ? "" : " \\fI" + plain(text) + "\\fR"; }
std::string heading(const std::string& text) { return ".SH " + upper(plain(text)) + "\n"; }
std::string item(const std::string& term, const std::string& text) {
    return ".TP\n" + term + "\n" + plain(text) + "\n";
}

std::string commands_of(const Description& description) {
    std::string page = description.commands.empty() ? "" : heading("Commands");
    for (const auto& command : description.commands)
        page += item(bold(command.name) + italic(command.words), command.about);
    return page;
}

std::string options_of(const Description& description) {
    std::string page = heading("Options"), section;
    for (const auto& option : description.options) {
        if (section != option.section) page += ".SS " + plain(option.section) + "\n";
        section = option.section;
        const std::string letter = option.letter == 0 ? "" : bold(std::string("-") + option.letter) + ", ";
        const std::string shown = option.fallback.empty() ? "" : " [" + option.fallback + "]";
        page += item(letter + bold("--" + option.name) + italic(option.value), option.help + shown);
    }
    return page;
}

}  // namespace

std::string manual_page(const Description& description) {
    std::string page =
        ".TH " + plain(upper(description.name)) + " 1 \"\" \"shared_tensor " SHARED_TENSOR_VERSION "\"\n";
    page += heading("Name") + plain(description.name) + " \\- " + plain(description.about) + "\n";
    page += heading("Synopsis") + bold(description.name) + " " + plain(description.synopsis) + "\n" +
            heading("Description");
    std::string before;
    for (const std::string& paragraph : description.introduction) {
        page += before + plain(paragraph) + "\n";
        before = ".PP\n";
    }
    page += commands_of(description) + options_of(description);
    for (const auto& part : description.parts) {
        page += heading(part.heading);
        for (const auto& [what, text] : part.items)
            page += item(bold(what), text);
    }
    return page;
}

}  // namespace shared_tensor::program
