"""Iterators among the arguments of a call: each is a stream that the function reads."""

from __future__ import annotations

import threading
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

from .errors import RpcError

if typing.TYPE_CHECKING:
    from .handles import Stream


def split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Returns the arguments that are values, and the iterators by the names of their streams: "" for one that is given
    by position."""
    unnamed = [value for value in args if isinstance(value, Iterator | AsyncIterator)]
    if len(unnamed) > 1:
        raise TypeError("pass iterators by the names of the parameters, if there are several")
    inputs = {name: value for name, value in kwargs.items() if isinstance(value, Iterator | AsyncIterator)}
    values = tuple(value for value in args if not any(value is one for one in unnamed))
    named = {name: value for name, value in kwargs.items() if name not in inputs}
    return values, named, inputs if not unnamed else {"": unnamed[0], **inputs}


class Feeder(threading.Thread):
    """Writes all items to a stream of `call`, and ends the stream. Stops early if the function wants no more of them,
    or if the call is over: then its reader raises the error. If `items` raises, the call is cancelled, and `error` is
    that exception. Nobody waits for the thread: `items` may block for ever."""

    def __init__(self, call: Stream, name: str, items: Iterator[Any]) -> None:
        super().__init__(name="shared_tensor stream", daemon=True)
        self._call, self._writer, self._items = call, call.writer(name), items
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for item in self._items:
                if not self._write(item):
                    return
            self._writer.end()
        except BaseException as error:
            self.error = error
            self._call.cancel()

    def _write(self, item: Any) -> bool:
        try:
            return self._writer.write(item)
        except RpcError:
            return False
