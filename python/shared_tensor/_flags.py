"""The options of a server as flags of `python -m shared_tensor.server`, and in the environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from . import _core
from ._options import keyword, no_such_option, option_texts

_LISTED = "--help-all lists the options"
_ON = ("1", "true", "yes", "on")


def add_flags(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Adds a flag for each option. --help explains the common ones, --help-all all of them."""
    everything = "--help-all" in arguments
    parser.add_argument("--help-all", action="help", help="print all options and end")
    groups: dict[str, Any] = {}
    for info in _core.list_server_options():
        if info.section not in groups:
            groups[info.section] = parser.add_argument_group(info.section)
        default = info.default_value if info.default_value != "off" else ""
        described = f"{info.help} [{default}]" if default else info.help
        form: dict[str, Any] = {"metavar": info.form, "action": "append" if info.is_list else "store"}
        groups[info.section].add_argument(
            "--" + info.name,
            default=argparse.SUPPRESS,
            help=described.replace("%", "%%") if everything or info.common else argparse.SUPPRESS,
            **form if info.form else {"action": argparse.BooleanOptionalAction},
        )


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Returns the parsed arguments, and the options of the server as keywords of SharedTensorProvider.start(). Flags
    have precedence over the environment. Ends the program if an option is unknown or has a bad value."""
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        _reject(parser, unknown[0])
    try:
        options = _in_environment()
    except ValueError as error:
        parser.error(str(error))
    for info in _core.list_server_options():
        name = keyword(info.name)
        if hasattr(parsed, name):
            value = getattr(parsed, name)
            options[name] = [item for text in value for item in text.split(",") if item] if info.is_list else value
    try:
        option_texts(options)
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        parser.error(f"--{name.replace('_', '-')}: {reason}")
    numbers = {keyword(info.name) for info in _core.list_server_options() if info.form == "N"}
    return parsed, {name: int(value) if name in numbers else value for name, value in options.items()}


def _reject(parser: argparse.ArgumentParser, argument: str) -> NoReturn:
    word = argument.partition("=")[0]
    if not word.startswith("-"):
        parser.error(f"{argument}: unexpected argument; {_LISTED}")
    names = [name for action in parser._actions for name in action.option_strings]
    parser.error(no_such_option(word, names, _LISTED))


def _in_environment() -> dict[str, Any]:
    infos = {info.name: info for info in _core.list_server_options()}
    options: dict[str, Any] = {}
    for name, text in _core.options_in_environment():
        if infos[name].is_list:
            options.setdefault(keyword(name), []).append(text)
        else:
            options[keyword(name)] = text if infos[name].form else text in _ON
    return options
