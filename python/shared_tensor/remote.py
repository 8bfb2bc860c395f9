"""Functions of a server that are called like functions of this process."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from typing import Any

from . import _core, _types
from .errors import BadArgument, ResultMismatch

if typing.TYPE_CHECKING:
    from ._function import Definition
    from .async_client import AsyncClient
    from .client import Client


class Result:
    """Makes what a function's type hint says of its result: a dataclass, an enum, bytes, a tensor of a framework."""

    def __init__(self, hint: Any) -> None:
        self._type = _types.of(hint)

    def read(self, value: Any, convert: Callable[[_core.Tensor], Any] | None) -> Any:
        """`convert`: for tensors of which the hint says nothing."""
        if isinstance(value, _core.Object):
            return value
        try:
            return _types.checked(self._type, value, "the result", convert)
        except BadArgument as bad:
            raise ResultMismatch(f"{bad.parameter}: expected {bad.expected}, got {bad.got}") from None


class Signature:
    """The parameters and the result of a function that is called in a server."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = _types.hints_of(function)
        signature = inspect.signature(function)
        # `self`: of a Protocol. A Context is added by the server.
        callers = [
            parameter
            for name, parameter in signature.parameters.items()
            if name != "self" and hints.get(name) is not _core.Context
        ]
        self.shown = signature.replace(parameters=callers)
        self.result = Result(hints.get("return", Any))

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. Raises TypeError if they do not fit."""
        return dict(self.shown.bind(*args, **kwargs).arguments)

    def call(self, client: Client, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = client._call(name, (), self.named(args, kwargs), None)
        return self.result.read(value, client._convert(args, kwargs))


class RemoteFunction:
    """A function of a server. `client.scale(x, factor=2)` calls it."""

    def __init__(self, client: Client, name: str, like: Callable[..., Any] | None = None) -> None:
        """like: a function with the signature and the type hints of the remote one; its body is not run."""
        self._client = client
        self.__name__ = name
        self._signature: Signature | None = None
        if like is not None:
            self._signature = Signature(like)
            self.__signature__ = self._signature.shown
            self.__doc__ = like.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is None:
            return self._client.call(self.__name__, *args, **kwargs)
        return self._signature.call(self._client, self.__name__, args, kwargs)

    def __getattr__(self, name: str) -> RemoteFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteFunction(self._client, f"{self.__name__}.{name}")  # model.forward

    def __repr__(self) -> str:
        return f"<function {self.__name__} of {self._client.url}>"


class Stub:
    """The functions of a Protocol, called in a server. Made by Client.stub()."""

    def __init__(self, client: Client, protocol: type) -> None:
        for kind in reversed(protocol.__mro__):
            for name, function in vars(kind).items():
                if inspect.isfunction(function) and not name.startswith("_"):
                    setattr(self, name, RemoteFunction(client, name, function))


def _with_iterators(definition: Definition, named: dict[str, Any]) -> dict[str, Any]:
    """Makes iterators of the arguments for the streams that the function reads: a list of items, for example."""
    readers = {parameter.name for parameter in definition.parameters if parameter.flow == "reader"}
    return {name: _iterator(value) if name in readers else value for name, value in named.items()}


def _iterator(items: Any) -> Any:
    return aiter(items) if isinstance(items, AsyncIterable) else iter(items)


def _streamed(client: Client, definition: Definition, named: dict[str, Any]) -> Any:
    """Calls a function with streams."""
    call = client.stream(definition.name, **_with_iterators(definition, named))

    def items() -> Iterator[Any]:
        try:
            yield from call
        finally:
            call.cancel()

    return items() if definition.streams_out else call.result()


def function_of(
    function: Callable[..., Any], definition: Definition, client: Callable[[], Client], later: Callable[[], AsyncClient]
) -> Callable[..., Any]:
    """Returns a function like `function`, of the same kind (plain, async, generator), that calls it in the server."""
    signature = Signature(function)
    name = definition.name
    streams = definition.streams_out or any(parameter.flow == "reader" for parameter in definition.parameters)

    def plain(*args: Any, **kwargs: Any) -> Any:
        if streams:
            return _streamed(client(), definition, signature.named(args, kwargs))
        return signature.call(client(), name, args, kwargs)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        if streams:
            return await later().stream(name, **_with_iterators(definition, signature.named(args, kwargs))).result()
        caller = later()
        value = await caller.options(framework="none").call(name, **signature.named(args, kwargs))
        return signature.result.read(value, caller._blocking._convert(args, kwargs))

    async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async for item in later().stream(name, **_with_iterators(definition, signature.named(args, kwargs))):
            yield item

    if inspect.isasyncgenfunction(function):
        return items
    return awaited if inspect.iscoroutinefunction(function) else plain
