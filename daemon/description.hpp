#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shared_tensor::program {

/// The command line of a program. Its manual page and its completions are made from it.
struct Description {
    struct Command {
        std::string name;
        std::string words;  ///< those that follow the name: "NAME [ARGUMENT...]"
        std::string about;
        std::string completes;  ///< the command that lists, with --names, what the first word may be; empty: none does
    };
    struct Option {
        std::string section;
        std::string name;   ///< without dashes
        char letter = 0;    ///< of the short form; 0: there is none
        std::string value;  ///< FILE, N, TIME, ...; empty: a flag
        std::string help;
        std::string fallback{};  ///< the default; empty: there is none to show
    };
    struct Part {
        std::string heading;
        std::vector<std::pair<std::string, std::string>> items;  ///< what, and its explanation
    };

    std::string name, about, synopsis;
    std::vector<std::string> introduction;  ///< paragraphs
    std::vector<Command> commands;
    std::vector<Option> options;  ///< section by section
    std::vector<Part> parts;      ///< what follows the options in the manual page
};

/// The manual page, for man(1).
std::string manual_page(const Description& description);

/// The completion for `shell`. Throws std::invalid_argument if it is none of bash, zsh and fish.
std::string completion_script(const Description& description, std::string_view shell);

}  // namespace shared_tensor::program
