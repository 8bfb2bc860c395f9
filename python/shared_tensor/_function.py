"""A Python function as the C++ server sees it."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import os
import threading
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import _convert, _core, _tracing, _types
from .errors import BadArgument, BadItem

if typing.TYPE_CHECKING:
    import asyncio

_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
)
_ASYNC_ITERATORS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    required: bool
    flow: str
    schema: dict[str, Any]
    default: Any
    type: _types.Type
    takes_tensor: bool = False  # nested lists are a tensor


class Items:
    """The items of a stream from the caller: an iterator, also for `async for`."""

    def __init__(self, reader: _core.ItemReader, check: _types.Check, name: str) -> None:
        self._reader, self._check, self._name = reader, check, name

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = self._reader.next()
        if not item:
            raise StopIteration
        try:
            return self._check(item[0], self._name)
        except BadArgument as bad:
            raise BadItem(bad.parameter, bad.expected, bad.got) from None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        import asyncio

        end = object()
        item = await asyncio.get_running_loop().run_in_executor(_THREADS, next, self, end)
        if item is end:
            raise StopAsyncIteration
        return item


class EventLoop:
    """Runs `async def` functions for threads of the server: in `loop`, else in a loop with a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._lock = threading.Lock()
        self._loop = loop

    def run(self, work: collections.abc.Coroutine[Any, Any, Any], context: _core.Context) -> Any:
        import asyncio
        import concurrent.futures

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="shared_tensor", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(timeout=0.05)
            except concurrent.futures.TimeoutError:  # a class of its own before Python 3.11
                if future.done():  # just now, or the function raised the TimeoutError
                    return future.result()
                if context.cancelled:
                    future.cancel()
                    context.check_cancelled()

    def forget(self) -> None:
        """In a forked child, where the loop's thread does not run. Its end would take events from the parent's loop."""
        self._lock = threading.Lock()
        self._of_parent, self._loop = self._loop, None


_LOOP = EventLoop()  # of all functions of this process


def _make_threads() -> ThreadPoolExecutor:
    """Threads that wait for items of async functions. Each stream may need one for ever, so there is no real limit."""
    return ThreadPoolExecutor(10_000, "shared_tensor items")


_THREADS = _make_threads()


def _after_fork() -> None:
    global _THREADS
    _LOOP.forget()
    _THREADS = _make_threads()


os.register_at_fork(after_in_child=_after_fork)


class Definition:
    """What the server knows about a function. Attributes without a comment are read by core/provider.cpp."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        cached: bool | float = False,
        concurrency: int = 0,
        task: bool = False,
        timeout: float | None = None,
        batched: int | tuple[int, float] | None = None,
        idempotent: bool = False,
        version: str = "",
        framework: Any = None,
    ) -> None:
        given = dict(locals())
        del given["self"], given["function"]
        self._given = given
        self.function = function
        self.name = name or function.__name__
        self.doc = inspect.cleandoc(function.__doc__ or "")
        self.where = _where(function)
        self.version = version
        self.concurrency = concurrency
        self.idempotent = idempotent
        self.task = task
        self.timeout_ms = 0 if timeout is None else int(timeout * 1000)
        rows, wait = batched if isinstance(batched, tuple) else (batched or 0, 0.0)
        if batched is not None and (rows < 1 or wait < 0):
            raise ValueError(
                f"{self.name}: batched=(rows, seconds) has at least one row and no negative time: {batched}"
            )
        self.batch_rows = rows
        self.batch_wait_us = int(wait * 1_000_000)
        self.cache_ms = int((3600.0 if cached is True else float(cached)) * 1000)

        self._signature = inspect.signature(function)
        hints = _types.hints_of(function)
        result = hints.get("return", Any)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.streams_out = (  # read by remote.py
            inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
            or typing.get_origin(result) in _ITERATORS + _ASYNC_ITERATORS
        )
        self._context: str | None = None
        self.parameters: list[Parameter] = []
        self._keywords: str | None = None  # name of **kwargs
        for parameter in self._signature.parameters.values():
            self._add(parameter, hints.get(parameter.name, Any))
        if self.streams_out:
            items = typing.get_args(result)
            item = _types.of(items[0] if items else Any)
            self.parameters.append(Parameter("items", False, "writer", item.schema, None, item))
            self.result_schema: dict[str, Any] = {"type": "null"}
            self._result = None
        else:
            self._result = _types.of(result)
            self.result_schema = self._result.schema
        if self.cache_ms > 0 and self.result_schema.get("required") == ["$object"]:
            raise ValueError(
                f"{self.name}: its result stays in the server, so it cannot be cached: write share(singleton=True) to "
                "make it once"
            )
        if any(name in ("items",) for name in self._signature.parameters) and self.streams_out:
            raise ValueError(f"{self.name}: the stream of a generator is named 'items': name the parameter otherwise")
        frameworks = {_types.framework_of(hint) for hint in hints.values()} - {None}
        chosen = framework if framework is not None else (frameworks.pop() if len(frameworks) == 1 else None)
        # Tensors of parameters with a tensor type are converted by their own type. All other tensors become this:
        self._convert = _convert.converter(chosen)

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        if hint is _core.Context:
            self._context = parameter.name
            return
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise TypeError(
                f"{self.name}: *{parameter.name} cannot be shared: callers are told each parameter's name and type"
            )
        origin = typing.get_origin(hint)
        if origin in _ITERATORS + _ASYNC_ITERATORS:
            items = typing.get_args(hint)
            item = _types.of(items[0] if items else Any)
            self.parameters.append(Parameter(parameter.name, False, "reader", item.schema, None, item))
            return
        kind = _types.of(hint)
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        schema = kind.schema
        if not required and not _can_be_json(default):
            schema, default = {**schema, "x-default": repr(default)}, None
        takes_tensor = _types.takes_tensor(hint)
        self.parameters.append(Parameter(parameter.name, required, "value", schema, default, kind, takes_tensor))

    def __repr__(self) -> str:
        return f"<{self.name}{self._signature} at {self.where}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Definition, **self._given), (self.function,)

    def __getitem__(self, key: str) -> Any:
        """provider._registered_functions had dicts in shared-tensor 0.1."""
        path = f"{self.function.__module__}:{self.function.__qualname__}"
        return {"name": self.name, "function_path": path, "where": self.where}[key]

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        """Checks the arguments before the call. Raises BadArgument."""
        arguments = {}
        for parameter in self.parameters:
            if parameter.flow != "value":
                continue
            if parameter.name in given:
                arguments[parameter.name] = self._check_of(parameter)(given[parameter.name], parameter.name)
            elif parameter.required:
                raise BadArgument(parameter.name, "a value", "nothing")
        return arguments

    def _check_of(self, parameter: Parameter) -> _types.Check:
        return lambda value, place: _types.checked(parameter.type, value, place, self._convert)

    def run(self, arguments: dict[str, Any], context: _core.Context) -> Any:
        """Calls the function. The result is written by the C++ server."""
        if self._context is not None:
            arguments[self._context] = context
        for index, parameter in enumerate(self.parameters):
            if parameter.flow == "reader":
                arguments[parameter.name] = Items(context._reader(index), self._check_of(parameter), parameter.name)
        positional = [
            arguments.pop(name)
            for name, parameter in self._signature.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and name in arguments
        ]
        with _tracing.called_by(context.traceparent if _tracing.in_use() else ""):
            return self._run(positional, arguments, context)

    def _run(self, positional: list[Any], arguments: dict[str, Any], context: _core.Context) -> Any:
        made = self.function(*positional, **arguments)
        if self.streams_out:
            self._send(made, context)
            return None
        if inspect.isawaitable(made):
            made = _LOOP.run(typing.cast("collections.abc.Coroutine[Any, Any, Any]", made), context)
        return made

    def _send(self, items: Any, context: _core.Context) -> None:
        writer = context._writer(len(self.parameters) - 1)
        if hasattr(items, "__aiter__"):
            import asyncio

            async def send() -> None:
                async for item in items:
                    context.check_cancelled()
                    if not await asyncio.get_running_loop().run_in_executor(_THREADS, writer.write, item):
                        return

            _LOOP.run(send(), context)
            return
        for item in items:
            if not writer.write(item):
                close = getattr(items, "close", None)
                if close is not None:
                    close()
                return


def _where(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _can_be_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_can_be_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _can_be_json(member) for key, member in value.items())
    return value is None or isinstance(value, bool | int | float | str)
