"""Helpers of shared-tensor 0.1 that programs import."""

from __future__ import annotations

import importlib
import inspect
import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def import_function_from_path(function_path: str) -> Callable[..., Any]:
    """Imports "package.module:function" or "package.module:Class.method" into this process. The server never imports
    what a caller names: it offers the functions that a provider shares."""
    module_name, colon, name = function_path.partition(":")
    if not colon or not name:
        raise ValueError(f"{function_path!r} is no path of a function: write 'package.module:function'")
    module = importlib.import_module(module_name)
    try:
        found = operator.attrgetter(name)(module)
    except AttributeError as error:
        raise ImportError(f"there is no {name} in {module_name}") from error
    if not callable(found):
        raise ValueError(f"{function_path} is a {type(found).__name__}, not a function")
    return typing.cast("Callable[..., Any]", found)


def format_cache_key(
    name: str,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    singleton_key_formatter: str,
) -> str:
    """Puts the function's arguments, defaults included, and its name (`_name_`) into the format string."""
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return singleton_key_formatter.format(_name_=name, **bound.arguments)


def serialize_result(obj: Any) -> NoReturn:
    """There is no pickle. Raises TypeError."""
    raise TypeError(
        "shared_tensor pickles nothing: pass values and tensors to functions as they are; a model stays in the server, "
        "and its handle is passed"
    )


def deserialize_args(data_hex: Any) -> NoReturn:
    """There is no pickle. Raises TypeError."""
    serialize_result(data_hex)


__all__ = ["deserialize_args", "format_cache_key", "import_function_from_path", "serialize_result"]
