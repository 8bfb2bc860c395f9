"""share(singleton=True): a function runs once for each key, and all callers get that one result."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ..utils import format_cache_key

P = ParamSpec("P")
R = TypeVar("R")


class _Result:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.value: tuple[()] | tuple[Any] = ()


def once_per_key(function: Callable[P, R], name: str, formatter: str | None) -> Callable[P, R]:
    """Returns a function that keeps the results of `function`, for as long as the process lives. The key is what
    `formatter` makes of the arguments; without a formatter it is all the arguments, which must be plain values. An
    exception is not kept."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{name}: singleton=True is for a plain function, not for async def or yield")
    results: dict[str, _Result] = {}
    lock = threading.Lock()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = _key(name, function, args, kwargs, formatter)
        with lock:
            result = results.setdefault(key, _Result())
        with result.lock:
            if not result.value:
                result.value = (function(*args, **kwargs),)
            return result.value[0]

    return call


def _key(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], formatter: str | None
) -> str:
    if formatter is not None:
        return format_cache_key(name, function, args, kwargs, formatter)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    for parameter, value in bound.arguments.items():
        if not _is_plain(value):
            raise TypeError(
                f"{name}: singleton=True needs a key, and {parameter} is a {type(value).__name__}: "
                "give singleton_key_formatter, for example '{size}'"
            )
    return repr(sorted(bound.arguments.items()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | bytes)
