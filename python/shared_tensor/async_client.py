"""Calls functions of a shared-tensor-server from asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator
from typing import Any

from . import _convert, _core
from ._first.async_client import AsyncSharedTensorClient, execute_remote_function_async
from .client import Client, Framework
from .handles import Task
from .records import Receipt, Retry, TaskStatus

_last_receipt: contextvars.ContextVar[tuple[Any, Receipt | None]] = contextvars.ContextVar(
    "last_receipt", default=(None, None)
)


class AsyncClient:
    """`await client.call("scale", x, factor=2)` or `await client.scale(x, factor=2)`.

    The parameters are those of Client, and `concurrency`: how many calls are sent at once, each by a thread of the C++
    client; any number of calls may wait for their turn. Cancelling the awaiting task cancels the call, and the server
    tells the function. Long work is better submitted: a running task holds no thread on either side of the wait.

    One event loop uses a client; nothing but the constructor blocks it. `async with` closes it. Errors: as Client.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float | None = 30.0,
        retry: Retry | int | None = Retry(),  # noqa: B008
        *,
        framework: Framework = None,
        concurrency: int = 16,
        **options: Any,
    ) -> None:
        self._blocking = Client(url, token, timeout, retry, framework=framework, **options)
        self._core = _core.AsyncClient(concurrency, **self._blocking._shared.pool_options)
        self._options = self._blocking._options

    async def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function and returns its result. Raises what Client.call() raises. Do not change tensors of
        arguments before the call has returned."""
        positional, named = args, kwargs
        if positional and named:  # needs the names of the parameters, which the first such call asks for
            positional, named = await asyncio.to_thread(self._blocking._arguments, method, args, kwargs)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        receipt: dict[str, Any] = {}

        def done(result: Any, error: BaseException | None, fields: dict[str, Any]) -> None:
            receipt.update(fields)
            loop.call_soon_threadsafe(_settle, outcome, result, error)

        stop = self._core.call(method, positional, named, done, **self._options.of_call())
        try:
            result = await outcome
        except asyncio.CancelledError:
            stop.request()
            raise
        finally:
            if self._options.receipt and receipt:
                _last_receipt.set((self, Receipt(**receipt)))
        convert = self._blocking._convert(args, kwargs)
        return result if convert is None else _convert.apply(result, convert)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self.call, name)

    @property
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last call in this task of asyncio, if it was a call by this client, which must have the
        option receipt=True."""
        client, receipt = _last_receipt.get()
        return receipt if client is self else None

    def options(self, **options: Any) -> AsyncClient:
        """Returns a client on the same connections with other options for its calls: see Client.options()."""
        made = object.__new__(AsyncClient)
        made._blocking = self._blocking.options(**options)
        made._core = self._core
        made._options = made._blocking._options
        return made

    async def submit(self, method: str, /, *args: Any, **kwargs: Any) -> AsyncTask:
        """Starts the call as a task in the server. Returns when the server has accepted it."""
        return AsyncTask(await asyncio.to_thread(self._blocking.submit, method, *args, **kwargs))

    async def stream(self, method: str, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yields the items of the stream that a function writes."""
        call = await asyncio.to_thread(self._blocking.stream, method, *args, **kwargs)
        reader, end = call.reader(), object()
        try:
            while (item := await asyncio.to_thread(next, reader, end)) is not end:
                yield item
            await asyncio.to_thread(call.result)
        finally:
            call.cancel()

    async def close(self) -> None:
        """Cancels the calls in flight, which raise Cancelled, and closes the connections. Later calls are a
        RuntimeError."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._core.close()
        self._blocking.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<shared_tensor.AsyncClient {self._blocking.url}>"


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():  # cancelled
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


class AsyncTask:
    """A call that runs as a task in the server. It goes on when this object is gone. Made by AsyncClient.submit().

    `await task` is `await task.result()`; `async for status in task` yields each change until the task has ended. It
    raises what Task raises."""

    def __init__(self, task: Task[Any]) -> None:
        self._task = task

    @property
    def id(self) -> str:
        """The task's id, for Client.task() in any process."""
        return self._task.id

    async def status(self) -> TaskStatus:
        """What the server knows about the task now."""
        return await asyncio.to_thread(self._task.status)

    async def result(self) -> Any:
        """Waits until the task has ended. Returns its result or raises its error. Cancelling the wait does not cancel
        the task."""
        while not await asyncio.to_thread(self._task.wait, 1.0):
            pass
        return await asyncio.to_thread(self._task.result)

    async def cancel(self) -> TaskStatus:
        """Cancels the task, unless it has ended already."""
        return await asyncio.to_thread(self._task.cancel)

    def __await__(self) -> Any:
        return self.result().__await__()

    async def __aiter__(self) -> AsyncIterator[TaskStatus]:
        """Yields each change of the task until it has ended."""
        iterator, end = iter(self._task), object()
        while (status := await asyncio.to_thread(next, iterator, end)) is not end:
            yield status  # type: ignore[misc]


__all__ = ["AsyncClient", "AsyncSharedTensorClient", "AsyncTask", "execute_remote_function_async"]
