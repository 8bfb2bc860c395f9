"""The options of a server by name: docs/options.md lists them, and the C++ library has the table."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core


def keyword(name: str) -> str:
    return name.replace("-", "_")


def no_such_option(name: str, names: Iterable[str], listed: str) -> str:
    """The text of an error. `listed`: where the options are listed."""
    import difflib  # not at the top: only a program with a wrong name pays for the import

    nearest = difflib.get_close_matches(name, names, n=1)
    return f"{name}: no such option; " + (f"the nearest is {nearest[0]}; " if nearest else "") + listed


def option_texts(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and texts of options that are given as keywords, as the C++ library takes them. None leaves the default.
    Raises TypeError for an unknown name or a type that no option has, ValueError for a bad value."""
    known = {keyword(info.name): info for info in _core.list_server_options()}
    texts = []
    for name, value in options.items():
        if name not in known:
            raise TypeError(no_such_option(name, known, "docs/options.md lists the options"))
        items = value if known[name].is_list and isinstance(value, (list, tuple)) else [value]
        texts += [(name, _text(name, item, known[name].form)) for item in items if item is not None]
    _core.check_options(texts)
    return texts


def _text(name: str, value: Any, form: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if form == "TIME" and isinstance(value, (int, float)) and math.isfinite(value):
        return f"{round(value * 1000) or int(value > 0)}ms"
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, float):
        return str(value)
    try:
        return str(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}: give a str, a bool, an int or a float") from None
