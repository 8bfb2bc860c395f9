#include "cli/commands.hpp"

namespace shared_tensor::cli {

const char* const kBashCompletion = R"bash(# bash completion of shared-tensor
_shared_tensor() {
    local word="${COMP_WORDS[COMP_CWORD]}" command="" url="" i
    local commands="call stream submit status wait result cancel tasks put get tensors delete watch leases objects functions info
        doctor ping completion"
    local options="--url --tls-ca --tls-certificate --tls-key --compression --wait-for-server --timeout --output --task
        --idempotent --key --session --require --ttl --deadline --name --if-version --after --json --names --state --limit
        --count --help --version"
    local valued=" -o --output --tls-ca --tls-certificate --tls-key --compression --wait-for-server --timeout --key --session --require --ttl --deadline --state --limit --count --name --if-version --after "
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

}  // namespace shared_tensor::cli
