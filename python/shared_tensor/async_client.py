"""Calls functions of a shared-tensor-server from asyncio."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import functools
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import _convert, _core, _inputs, _tracing
from ._first.async_client import AsyncSharedTensorClient, execute_remote_function_async
from .client import Client, Framework
from .errors import Cancelled, InvalidParams, RpcError
from .handles import Stream, Task, Writer
from .records import Receipt, Retry, TaskStatus

_last_receipt: contextvars.ContextVar[tuple[Any, Receipt | None]] = contextvars.ContextVar(
    "last_receipt", default=(None, None)
)


_CORES: weakref.WeakSet[_core.AsyncClient] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """The threads of a client run Python, so they must end before Python does."""
    for core in list(_CORES):
        core.close()


class AsyncClient:
    """`await client.call("scale", x, factor=2)` or `await client.scale(x, factor=2)`.

    The parameters are those of Client, and `concurrency`: how many calls are sent at once, each by a thread of the C++
    client; any number of calls may wait for their turn. Cancelling the awaiting task cancels the call, and the server
    tells the function. Long work is better submitted: a running task holds no thread on either side of the wait.

    One event loop uses a client. The constructor blocks it. A call does for as long as its arguments are written (0.5 s
    for 800 MB of tensors), and for a second if a server on this host does not answer; nothing else does. `async with`
    closes it. Errors: as Client.
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
        _CORES.add(self._core)
        self._options = self._blocking._options
        self._streams = asyncio.Semaphore(concurrency)

    async def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function and returns its result. Raises what Client.call() raises. Do not change tensors of
        arguments before the call has returned."""
        known = self._blocking._known_arguments(method, args, kwargs)
        if known is None:  # needs the names of the parameters
            known = await asyncio.to_thread(self._blocking._arguments, method, args, kwargs)
        positional, named = known
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        receipt: dict[str, Any] = {}

        def done(result: Any, error: BaseException | None, fields: dict[str, Any]) -> None:
            receipt.update(fields)
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, outcome, result, error)

        with _tracing.client_span(method) as traceparent:
            options = {**self._options.of_call(), "traceparent": traceparent}
            stop = self._core.call(method, positional, named, done, **options)
            try:
                result = await outcome
            except asyncio.CancelledError:
                stop.request()
                raise
            except InvalidParams:
                self._blocking._shared.parameters = {}  # the function may have other parameters now
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
        made._streams = self._streams
        made._options = made._blocking._options
        return made

    async def submit(self, method: str, /, *args: Any, **kwargs: Any) -> AsyncTask:
        """Starts the call as a task in the server. Returns when the server has accepted it."""
        return AsyncTask(await asyncio.to_thread(self._blocking.submit, method, *args, **kwargs))

    def stream(self, method: str, /, *args: Any, **kwargs: Any) -> AsyncStream:
        """Calls a function with streams: `async for item in client.stream("detect", windows=windows)`, or `await
        client.stream(...).result()` for a function that only reads.

        An argument that is an asynchronous iterator, or an iterator, is a stream that the function reads; it may be
        given by position if there is one. If it raises, the call is cancelled, and the exception is raised here.

        The C++ client has no asynchronous streams: a stream that runs has a thread for what it reads, and one for each
        iterator. At most `concurrency` streams run at once, and more wait for their turn. A plain iterator runs in its
        thread, so it may block.
        """
        return AsyncStream(self._blocking, self._streams, method, args, kwargs)

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


class AsyncStream:
    """A call of a function with streams, which starts when it is iterated, or when result() is awaited: do one of them,
    once. Made by AsyncClient.stream(). Leaving the loop cancels the call."""

    def __init__(
        self, client: Client, turns: asyncio.Semaphore, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        values, named, inputs = _inputs.split(args, kwargs)
        self._inputs = {name: items for name, items in inputs.items() if isinstance(items, AsyncIterator)}
        plain = {name: items for name, items in inputs.items() if name not in self._inputs}
        unnamed = [plain.pop("")] if "" in plain else []
        self._start = functools.partial(client.stream, method, *values, *unnamed, **named, **plain)
        self._turns = turns

    async def __aiter__(self) -> AsyncIterator[Any]:
        async with self._running() as (call, run):
            reader, end = call.reader(), object()
            while (item := await run(next, reader, end)) is not end:
                yield item
            await run(call.result)

    async def result(self) -> Any:
        """Waits until the function has returned; returns its result or raises its error. Items that it writes are
        dropped."""
        async with self._running() as (call, run):
            return await run(call.result)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[tuple[Stream, Run]]:
        """The call, and what runs its blocking methods in threads of its own: so it never waits for another call."""
        async with self._turns:
            threads = ThreadPoolExecutor(1 + len(self._inputs), "shared_tensor stream")
            run = functools.partial(asyncio.get_running_loop().run_in_executor, threads)
            call: Stream | None = None
            feeders: list[asyncio.Task[None]] = []
            try:
                call = await run(contextvars.copy_context().run, self._start)
                for name, items in self._inputs.items():
                    feeders.append(asyncio.create_task(_feed(call, call.writer(name), items, run)))
                yield call, run
            except Cancelled:
                for feeder in feeders:
                    if feeder.done() and not feeder.cancelled() and (error := feeder.exception()) is not None:
                        raise error from None
                raise
            finally:
                if call is not None:
                    call.cancel()
                for feeder in feeders:
                    feeder.cancel()
                await asyncio.gather(*feeders, return_exceptions=True)
                threads.shutdown(wait=False)


Run = Callable[..., Awaitable[Any]]


async def _feed(call: Stream, writer: Writer, items: AsyncIterator[Any], run: Run) -> None:
    """Writes all items, and ends the stream. If `items` raises, cancels the call."""
    try:
        async for item in items:
            try:
                if not await run(writer.write, item):
                    return
            except RpcError:  # the call is over, and its reader raises the error
                return
        await run(writer.end)
    except BaseException:
        call.cancel()
        raise
    finally:
        if hasattr(items, "aclose"):
            await items.aclose()


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
        """Waits until the task has ended: asks the server again after 5% of the time so far, 10 ms to 1 s. Returns its
        result or raises its error. Cancelling the wait does not cancel the task."""
        begin = time.monotonic()
        while not await asyncio.to_thread(self._task.wait, 0.0):  # a longer wait would hold the thread
            await asyncio.sleep(min(max((time.monotonic() - begin) / 20, 0.01), 1.0))
        return await asyncio.to_thread(self._task.result)

    async def cancel(self) -> TaskStatus:
        """Cancels the task, unless it has ended already."""
        return await asyncio.to_thread(self._task.cancel)

    def __await__(self) -> Any:
        return self.result().__await__()

    async def __aiter__(self) -> AsyncIterator[TaskStatus]:
        """Yields each change of the task until it has ended."""
        while True:
            status = await self.status()
            yield status
            if status.ended:
                return
            await asyncio.sleep(0.1)


__all__ = ["AsyncClient", "AsyncSharedTensorClient", "AsyncStream", "AsyncTask", "execute_remote_function_async"]
