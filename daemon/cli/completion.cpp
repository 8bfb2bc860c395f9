#include "cli/commands.hpp"

namespace shared_tensor::cli {

namespace {

constexpr const char* kScript = R"bash(# bash completion of shared-tensor
_shared_tensor() {
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
    local program="${COMP_WORDS[0]}"
    local -a ask=("$program" --timeout 2s)
    [[ -n $url ]] && ask+=(--url "$url")
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
    elif [[ $position == 0 && $command =~ ^(call|stream|submit|functions)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${ask[@]}" functions --names 2>/dev/null)" -- "$word")
    elif [[ $position == 0 && $command =~ ^(status|wait|result|cancel)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${ask[@]}" tasks --names 2>/dev/null)" -- "$word")
    elif [[ $position == 0 && $command =~ ^(get|delete|watch|tensors)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${ask[@]}" tensors --names 2>/dev/null)" -- "$word")
    elif [[ $word == *@* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -P "${word%%@*}@" -- "${word#*@}")
    fi
}
complete -o default -F _shared_tensor shared-tensor
)bash";

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words)
        text.append(text.empty() ? "" : " ").append(word);
    return text;
}

}  // namespace

std::string completion_script(const std::vector<std::string>& options, const std::vector<std::string>& valued) {
    std::vector<std::string> names;
    for (const Command& command : commands())
        names.emplace_back(command.name);
    std::string script = kScript;
    const auto put = [&](std::string_view place, const std::vector<std::string>& words) {
        script.replace(script.find(place), place.size(), joined(words));
    };
    put("@commands@", names);
    put("@options@", options);
    put("@valued@", valued);
    return script;
}

}  // namespace shared_tensor::cli
