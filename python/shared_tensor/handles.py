"""Calls in progress: tasks, streams and batches. Made by a Client."""

from __future__ import annotations

import math
import time
import typing
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from . import _core
from .records import Receipt, TaskStatus

if typing.TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")
Convert = Callable[[_core.Tensor], Any] | None
"""Makes a framework's tensor; None: a Tensor stays one."""


class Task(Generic[T]):
    """A call that runs as a task in the server. It goes on when this object is gone."""

    def __init__(self, core: _core.Task, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    @property
    def id(self) -> str:
        return self._core.id()

    def status(self) -> TaskStatus:
        return TaskStatus(**self._core.status())

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the task has ended or `timeout` seconds are over. Returns whether it has ended."""
        return self._core.wait_for(31_536_000.0 if timeout is None else timeout)

    def result(self, timeout: float | None = None, *, progress: bool = False) -> T:
        """Blocks until the task has ended. Returns the result or raises the call's error; TimeoutError if `timeout`
        seconds are over before. `progress`: shows a progress bar, where tqdm is installed."""
        if progress:
            self._show(timeout)
        if timeout is not None and not self.wait(timeout):
            raise TimeoutError(f"task {self.id} has not ended within {timeout:g} s; it goes on in the server")
        return typing.cast(T, self._core.get(self._convert))

    def _show(self, timeout: float | None) -> None:
        from ._show import ProgressBar

        bar = ProgressBar(self.status().method)
        end = math.inf if timeout is None else time.monotonic() + timeout
        try:
            for status in self:
                bar.show(status)
                if time.monotonic() > end:
                    return
        finally:
            bar.close()

    def cancel(self) -> TaskStatus:
        """Cancels the task, unless it has ended already."""
        return TaskStatus(**self._core.cancel())

    def on_progress(self, report: Callable[[TaskStatus], None]) -> None:
        """Calls `report` for each change of the task, on the thread that waits in wait() or result()."""
        self._core.on_progress(lambda fields: report(TaskStatus(**fields)))

    def __iter__(self) -> Iterator[TaskStatus]:
        """Yields each change of the task until it has ended."""
        while True:
            status = self.status()
            yield status
            if status.ended:
                return
            self.wait(0.25)

    def __repr__(self) -> str:
        return f"<shared_tensor.Task {self.id}>"

    def _repr_html_(self) -> str:
        from ._show import table

        return table(f"Task {self.id}", vars(self.status()).items())


class Reader:
    """An iterator of the items that a function writes to a stream."""

    def __init__(self, core: _core.Reader, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        item = self._core.next(self._convert)
        if not item:
            raise StopIteration
        return item[0]


class Writer:
    """Takes the items of a stream that a function reads. `with` ends the stream."""

    def __init__(self, core: _core.Writer) -> None:
        self._core = core

    def write(self, item: Any) -> bool:
        """Sends an item. Blocks while the window is full. Returns False if the function wants no more items."""
        return self._core.write(item)

    def end(self) -> None:
        self._core.end()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end()


class Stream:
    """A call of a function with streams. Iterate over it to read the only stream that the function writes."""

    def __init__(self, core: _core.StreamCall, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    def reader(self, name: str = "") -> Reader:
        """The reading end of a stream that the function writes; the name may be omitted if there is one."""
        return Reader(self._core.reader(name), self._convert)

    def writer(self, name: str = "") -> Writer:
        """The writing end of a stream that the function reads; the name may be omitted if there is one."""
        return Writer(self._core.writer(name))

    def result(self) -> Any:
        """Blocks until the function has returned; returns its result or raises its error."""
        return self._core.result(self._convert)

    def cancel(self) -> None:
        self._core.cancel()

    def __iter__(self) -> Iterator[Any]:
        yield from self.reader()
        self.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class BatchItem:
    """The answer to one call of a batch. It can be an argument of a later call of the same batch."""

    def __init__(self, core: _core.BatchItem, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    def result(self) -> Any:
        """Returns the result, or raises the error of this call."""
        return self._core.get(self._convert)


class Batch:
    """Calls that are sent as one request: `with client.batch() as batch: total = batch.call("add", 1, 2)`, then
    `total.result()`. The server may run them at once and in any order."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client._core.batch()
        self.receipt: Receipt | None = None

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> BatchItem:
        positional, named = self._client._arguments(method, args, kwargs)
        plain = tuple(item._core if isinstance(item, BatchItem) else item for item in positional)
        by_name = {name: item._core if isinstance(item, BatchItem) else item for name, item in named.items()}
        return BatchItem(self._core.add(method, plain, by_name), self._client._convert(args, kwargs))

    def notify(self, method: str, /, *args: Any, **kwargs: Any) -> None:
        self._core.notify(method, *self._client._arguments(method, args, kwargs))

    def send(self) -> None:
        """Sends the batch, and blocks until all answers are there. Raises only if there are no answers."""
        self.receipt = Receipt(**self._core.send())

    def __len__(self) -> int:
        return self._core.size()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and len(self) > 0:
            self.send()
