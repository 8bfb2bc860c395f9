// The completions of a program for bash, zsh and fish: commands, options, files, and names that the server lists.

#include <algorithm>
#include <map>
#include <stdexcept>

#include "description.hpp"

namespace shared_tensor::program {

namespace {

/// Replaces each of `places`, which must be in the text.
std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& places) {
    for (const auto& [place, words] : places) {
        for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + words.size()))
            text.replace(at, place.size(), words);
    }
    return text;
}

std::string quoted(const std::string& text, const std::string& quote_in_it) {
    return "'" + filled(text, {{"'", quote_in_it}}) + "'";
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : separator) + word;
    return text;
}

/// The name of the program as a part of a function's name.
std::string identifier(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

std::vector<std::string> command_names(const Description& description) {
    std::vector<std::string> names;
    for (const auto& command : description.commands)
        names.push_back(command.name);
    return names;
}

/// The options that take a value in the next word.
std::vector<std::string> options_with_value(const Description& description) {
    std::vector<std::string> names;
    for (const auto& option : description.options) {
        if (option.value.empty()) continue;
        names.push_back("--" + option.name);
        if (option.letter != 0) names.push_back(std::string("-") + option.letter);
    }
    return names;
}

/// For each command that lists names: the commands that take such a name.
std::map<std::string, std::vector<std::string>> takers(const Description& description) {
    std::map<std::string, std::vector<std::string>> by_list;
    for (const auto& command : description.commands) {
        if (!command.completes.empty()) by_list[command.completes].push_back(command.name);
    }
    return by_list;
}

constexpr const char* kBash = R"bash(# bash completion of @program@
_@function@() {
    local word="${COMP_WORDS[COMP_CWORD]}" command="" url="" i
    local commands="@commands@"
    local options="@options@"
    local valued=" @valued@ "
    local position=0
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            --url) url="${COMP_WORDS[i + 1]}"; ((i++)) ;;
            -*) [[ $valued == *" ${COMP_WORDS[i]} "* ]] && ((i++)) ;;
            *)
                if [[ -z $command ]]; then command="${COMP_WORDS[i]}"; else ((position++)); fi
                ;;
        esac
    done
    # readline cuts words at ':', so an address comes in pieces; the whole is in the line
    if [[ $COMP_LINE =~ --url[\ =]+([^\ ]+) ]]; then
        url="${BASH_REMATCH[1]}"
        position=0
        command=""
        local rest="${COMP_LINE:0:COMP_POINT}" part skip=""
        rest="${rest/--url[ =]$url/}"
        local -a parts=()
        read -r -a parts <<< "$rest"
        [[ $rest == *" " ]] && parts+=("")
        for part in "${parts[@]:1:${#parts[@]}-2}"; do
            if [[ -n $skip ]]; then skip=""; continue; fi
            case "$part" in
                -*) [[ $valued == *" $part "* ]] && skip=1 ;;
                *) if [[ -z $command ]]; then command="$part"; else ((position++)); fi ;;
            esac
        done
    fi
    local program="${COMP_WORDS[0]}" before="${COMP_WORDS[COMP_CWORD - 1]}" list=""
    local -a ask=("$program" --timeout 2s)
    [[ -n $url ]] && ask+=(--url "$url")
    if [[ $position == 0 ]]; then
        case "$command" in
@lists@            *) ;;
        esac
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    elif [[ $valued == *" $before "* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
    elif [[ -n $list ]]; then
        # not by compgen -W, which would run a $(command) in a name that any client of the server chose
        local name
        while IFS= read -r name; do
            [[ $name == "$word"* ]] && COMPREPLY+=("$(printf %q "$name")")
        done < <("${ask[@]}" "$list" --names 2>/dev/null)
    elif [[ $word == *@* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -P "${word%%@*}@" -- "${word#*@}")
    fi
}
complete -o default -F _@function@ @program@
)bash";

std::string bash(const Description& description) {
    std::vector<std::string> options;
    for (const auto& option : description.options)
        options.push_back("--" + option.name);
    std::string lists;
    for (const auto& [list, commands] : takers(description))
        lists += "            " + joined(commands, "|") + ") list=" + list + " ;;\n";
    return filled(kBash, {{"@program@", description.name},
                          {"@function@", identifier(description.name)},
                          {"@commands@", joined(command_names(description), " ")},
                          {"@options@", joined(options, " ")},
                          {"@valued@", joined(options_with_value(description), " ")},
                          {"@lists@", lists}});
}

constexpr const char* kZsh = R"zsh(#compdef @program@
_@program@() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    local -a commands=(
@commands@    )
    _arguments -C \
@options@        '1:command:->command' '*:argument:->argument'
    case $state in
        command) _describe command commands ;;
        argument)
            local list=""
            if (( ${#line} <= 2 )); then
                case ${line[1]} in
@lists@                    *) ;;
                esac
            fi
            if [[ -n $list ]]; then
                local -a ask=(${words[1]} --timeout 2s) names
                [[ -n ${opt_args[--url]} ]] && ask+=(--url ${opt_args[--url]})
                names=(${(f)"$($ask $list --names 2>/dev/null)"})
                compadd -a names
            else
                compset -P '*@'
                _files
            fi
            ;;
    esac
}
if [[ ${funcstack[1]} == _@program@ ]]; then _@program@ "$@"; else compdef _@program@ @program@; fi
)zsh";

std::string zsh(const Description& description) {
    const auto quote = [](const std::string& text) { return quoted(text, "'\\''"); };
    std::string commands, options, lists;
    for (const auto& command : description.commands)
        commands += "        " + quote(command.name + ":" + command.about) + "\n";
    for (const auto& option : description.options) {
        const std::string help = filled(option.help, {{"[", "("}, {"]", ")"}});
        const std::string end = "[" + help + "]" + (option.value.empty() ? "" : ":" + option.value + ":_files");
        options += "        " + quote("*--" + option.name + end) + " \\\n";
        if (option.letter != 0) options += "        " + quote(std::string("*-") + option.letter + end) + " \\\n";
    }
    for (const auto& [list, takers_of_it] : takers(description))
        lists += "                    " + joined(takers_of_it, "|") + ") list=" + list + " ;;\n";
    return filled(
        kZsh, {{"@program@", description.name}, {"@commands@", commands}, {"@options@", options}, {"@lists@", lists}});
}

constexpr const char* kFish = R"fish(# fish completion of @program@
function __@function@_words # the words before this one, without options and their values
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word @valued@
            set skip 1
        else if not string match -q -- '-*' $word
            echo $word
        end
    end
end
function __@function@_names # what the server lists
    set -l words (commandline -opc)
    set -l url
    if set -l at (contains -i -- --url $words)
        set url --url $words[(math $at + 1)]
    end
    $words[1] --timeout 2s $url $argv --names 2>/dev/null
end
function __@function@_takes # whether the next word is the first one after one of these commands
    set -l words (__@function@_words)
    test (count $words) = 1; and contains -- $words[1] $argv
end
)fish";

std::string fish(const Description& description) {
    const auto quote = [](const std::string& text) { return quoted(filled(text, {{"\\", "\\\\"}}), "\\'"); };
    const std::string function = "__" + identifier(description.name), begin = "complete -c " + description.name;
    std::string script = filled(kFish, {{"@program@", description.name},
                                        {"@function@", identifier(description.name)},
                                        {"@valued@", joined(options_with_value(description), " ")}});
    for (const auto& command : description.commands)
        script += begin + " -f -n 'test (count (" + function + "_words)) = 0' -a " + command.name + " -d " +
                  quote(command.about) + "\n";
    for (const auto& [list, commands] : takers(description))
        script += begin + " -f -n '" + function + "_takes " + joined(commands, " ") + "' -a '(" + function + "_names " +
                  list + ")'\n";
    for (const auto& option : description.options)
        script += begin + (option.letter == 0 ? "" : std::string(" -s ") + option.letter) + " -l " + option.name +
                  (option.value.empty() ? "" : " -r") + " -d " + quote(option.help) + "\n";
    return script;
}

}  // namespace

std::string completion_script(const Description& description, std::string_view shell) {
    if (shell == "bash") return bash(description);
    if (shell == "zsh") return zsh(description);
    if (shell == "fish") return fish(description);
    throw std::invalid_argument("there are completions for bash, zsh and fish, not for \"" + std::string(shell) + '"');
}

}  // namespace shared_tensor::program
