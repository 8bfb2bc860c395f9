"""Calls in progress: tasks, streams and batches. Made by a Client."""

from __future__ import annotations

import contextlib
import math
import time
import typing
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from . import _core, _tracing
from ._inputs import Feeder
from .errors import Cancelled
from .records import Receipt, TaskStatus

if typing.TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")
Convert = Callable[[_core.Tensor], Any] | None
"""Makes a framework's tensor; None: a Tensor stays one."""


class Task(Generic[T]):
    """A call that runs as a task in the server. It goes on when this object is gone. Made by Client.submit().

    Any thread may use it. Each method but on_progress() asks the server; it raises UnknownOrExpired if the server has
    dropped the task. `for status in task` yields each change until the task has ended."""

    def __init__(self, core: _core.Task, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    @property
    def id(self) -> str:
        """The task's id, for Client.task() in any process."""
        return self._core.id()

    def status(self) -> TaskStatus:
        """What the server knows about the task now."""
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
        """Cancels the task, unless it has ended already. The function is told; its result is dropped."""
        return TaskStatus(**self._core.cancel())

    def on_progress(self, report: Callable[[TaskStatus], None]) -> None:
        """Calls `report` for each change of the task, on the thread that waits in wait() or result(). Call it before
        them. What `report` raises is printed and dropped."""
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
    """An iterator of the items that a function writes to a stream. Made by Stream.reader(). One thread at a time.

    next() blocks until an item is there; it raises the error that ended the call."""

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
    """Takes the items of a stream that a function reads. Made by Stream.writer(). One thread at a time. `with` ends the
    stream; if an exception leaves the block, it cancels the call."""

    def __init__(self, core: _core.Writer, cancel: Callable[[], None]) -> None:
        self._core = core
        self._cancel = cancel

    def write(self, item: Any) -> bool:
        """Sends an item. Blocks while the window is full. Returns False if the function wants no more items. Raises
        TypeError for an item that cannot be sent, and the error that ended the call."""
        return self._core.write(item)

    def end(self) -> None:
        """Ends the stream: the function sees its end after the last item."""
        self._core.end()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end()
        else:  # the function must not take a part of the items for all of them
            self._cancel()


class Stream:
    """A call of a function with streams, on a connection of its own. Made by Client.stream(). Iterate over it to read
    the only stream that the function writes; the end raises the call's error, if it failed. `with` cancels a call that
    is not over. Any thread may use it, and write while another reads."""

    def __init__(
        self, core: _core.StreamCall, convert: Convert, inputs: dict[str, Iterator[Any]] | None = None
    ) -> None:
        self._core = core
        self._convert = convert
        self._feeders: list[Feeder] = []
        try:
            for name, items in (inputs or {}).items():
                self._feeders.append(Feeder(self, name, items))
        except BaseException:  # the function reads no stream of this name
            self.cancel()
            raise

    def reader(self, name: str = "") -> Reader:
        """The reading end of a stream that the function writes; the name may be omitted if there is one."""
        return Reader(self._core.reader(name), self._convert)

    def writer(self, name: str = "") -> Writer:
        """The writing end of a stream that the function reads; the name may be omitted if there is one."""
        return Writer(self._core.writer(name), self._core.cancel)

    def result(self) -> Any:
        """Blocks until the function has returned; returns its result or raises its error. Call it once, after all
        writers have ended."""
        with self._errors_of_feeders():
            return self._core.result(self._convert)

    @contextlib.contextmanager
    def _errors_of_feeders(self) -> Iterator[None]:
        """An iterator that raised has cancelled the call: its exception is the reason."""
        try:
            yield
        except Cancelled:
            for feeder in self._feeders:
                if feeder.error is not None:
                    raise feeder.error from None
            raise

    def cancel(self) -> None:
        """Cancels the call: readers, writers and result() raise Cancelled. Does not block."""
        self._core.cancel()

    def __iter__(self) -> Iterator[Any]:
        try:
            with self._errors_of_feeders():
                yield from self.reader()
            self.result()
        finally:
            if self._feeders:
                self.cancel()  # ends their threads; of a call that is over, it does nothing

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class BatchItem:
    """The answer to one call of a batch. Made by Batch.call(). It can be an argument of a later call of the same batch:
    the server passes the result itself."""

    def __init__(self, core: _core.BatchItem, convert: Convert) -> None:
        self._core = core
        self._convert = convert

    def result(self) -> Any:
        """Returns the result, or raises the error of this call; RuntimeError before the batch was sent."""
        return self._core.get(self._convert)


class Batch:
    """Calls that are sent as one request: `with client.batch() as batch: total = batch.call("add", 1, 2)`, then
    `total.result()`. The server may run them at once and in any order. Made by Client.batch(). One thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client._core_in(_tracing.traceparent()).batch()
        self.receipt: Receipt | None = None

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> BatchItem:
        """Adds a call. Its arguments are read now."""
        positional, named = self._client._arguments(method, args, kwargs)
        plain = tuple(item._core if isinstance(item, BatchItem) else item for item in positional)
        by_name = {name: item._core if isinstance(item, BatchItem) else item for name, item in named.items()}
        return BatchItem(self._core.add(method, plain, by_name), self._client._convert(args, kwargs))

    def notify(self, method: str, /, *args: Any, **kwargs: Any) -> None:
        """Adds a call without an answer."""
        self._core.notify(method, *self._client._arguments(method, args, kwargs))

    def send(self) -> None:
        """Sends the batch, and blocks until all answers are there. Raises only if there are no answers: then a child of
        RpcError. The end of `with` calls it."""
        self.receipt = Receipt(**self._core.send())

    def __len__(self) -> int:
        return self._core.size()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and len(self) > 0:
            self.send()
