"""Serves a ComputeFunction."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from .._addresses import TOKEN_FILE, reject_open_host
from .._core import Context
from .._function import EventLoop
from .._signals import wait
from ..provider import SharedTensorProvider
from .codecs import TensorCodec
from .functions import AsyncComputeFunction, ComputeFunction


class _Service:
    """The two functions that a compute server shares, `compute` and `service_info`."""

    def __init__(self, function: ComputeFunction | AsyncComputeFunction, port: int, version: str) -> None:
        info = dict(function.get_info())
        self._name = str(info.pop("name", type(function).__name__))
        self._device = str(info.pop("device", "cpu"))
        self._custom_info = info
        self._version = version
        self._framework = function.framework
        self._requests = 0
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.provider = SharedTensorProvider(port, execution_mode="server", name=self._name, version=version)

    def share(self, compute: Callable[[Any, Context], Any], max_workers: int) -> None:
        def counted(input_tensor: Any, context: Context) -> Any:
            """Runs the function of this service."""
            with self._lock:
                self._requests += 1
            return compute(input_tensor, context)

        self.provider.register("compute", counted, concurrency=max_workers, framework=self._framework)
        self.provider.register("service_info", self.info)

    def info(self) -> dict[str, Any]:
        """What this service is, and how many calls of compute it got."""
        with self._lock:
            requests = self._requests
        return {
            "service_name": self._name,
            "version": self._version,
            "device": self._device,
            "total_requests": requests,
            "uptime_seconds": time.monotonic() - self._started,
            "custom_info": self._custom_info,
        }


class _Server:
    """What both servers have in common: the options and the address."""

    def __init__(
        self,
        compute_fn: ComputeFunction | AsyncComputeFunction,
        host: str,
        port: int,
        codec: TensorCodec | None,
        max_workers: int,
        version: str,
        token_file: str,
        insecure: bool,
    ) -> None:
        reject_open_host(host, bool(token_file) or insecure, TOKEN_FILE)
        self._service = _Service(compute_fn, port, version)
        self._options: dict[str, Any] = {
            "host": host,
            "workers": max_workers + 1,  # one more for service_info
            "token_file": token_file,
            "insecure": insecure,
            **(codec or TensorCodec()).server_options,
        }

    @property
    def url(self) -> str:
        """After start(): "http://127.0.0.1:50051"."""
        return self._service.provider.url


class ComputeServer(_Server):
    """Serves a ComputeFunction. `with ComputeServer(...)` starts and stops it.

    host: other machines reach only a server with another host than 127.0.0.1, which needs `token_file` or `insecure`.
    port: 0: any free port. codec: CompressedTensorCodec for slow networks. max_workers: calls that run at once; more
    calls wait. version: what get_service_info() tells.
    """

    def __init__(
        self,
        compute_fn: ComputeFunction,
        host: str = "127.0.0.1",
        port: int = 50051,
        codec: TensorCodec | None = None,
        max_workers: int = 1,
        *,
        version: str = "1.0.0",
        token_file: str = "",
        insecure: bool = False,
    ) -> None:
        if not isinstance(compute_fn, ComputeFunction):
            raise TypeError(
                "ComputeServer serves a ComputeFunction; for an AsyncComputeFunction use AsyncComputeServer"
            )
        super().__init__(compute_fn, host, port, codec, max_workers, version, token_file, insecure)
        self.compute_fn = compute_fn
        self._stopped = threading.Event()
        self._service.share(lambda tensor, _: compute_fn.compute(tensor), max_workers)

    def start(self) -> None:
        """Starts to serve, on threads. Does not block."""
        self.compute_fn.setup()
        try:
            self._service.provider.start(**self._options)
        except BaseException:
            self.compute_fn.teardown()
            raise

    def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Blocks until stop(), or for `timeout` seconds. Returns whether the server has stopped. Ctrl-C raises."""
        return wait(self._stopped, timeout)

    def stop(self, grace: float = 5.0) -> None:
        """Stops the server. Calls in flight may take `grace` seconds."""
        if self._stopped.is_set():
            return
        self._service.provider.stop(grace)
        self.compute_fn.teardown()
        self._stopped.set()

    def __enter__(self) -> ComputeServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class AsyncComputeServer(_Server):
    """Serves an AsyncComputeFunction, whose coroutines run in the event loop that awaits start(). Parameters as for
    ComputeServer."""

    def __init__(
        self,
        compute_fn: AsyncComputeFunction,
        host: str = "127.0.0.1",
        port: int = 50051,
        codec: TensorCodec | None = None,
        max_workers: int = 16,
        *,
        version: str = "1.0.0",
        token_file: str = "",
        insecure: bool = False,
    ) -> None:
        if not isinstance(compute_fn, AsyncComputeFunction):
            raise TypeError(
                "AsyncComputeServer serves an AsyncComputeFunction; for a ComputeFunction use ComputeServer"
            )
        super().__init__(compute_fn, host, port, codec, max_workers, version, token_file, insecure)
        self.compute_fn = compute_fn
        self._max_workers = max_workers
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Starts to serve."""
        loop = EventLoop(asyncio.get_running_loop())
        self._service.share(
            lambda tensor, context: loop.run(self.compute_fn.compute(tensor), context), self._max_workers
        )
        await self.compute_fn.setup()
        try:
            await asyncio.to_thread(self._service.provider.start, **self._options)
        except BaseException:
            await self.compute_fn.teardown()
            raise

    async def wait_for_termination(self) -> None:
        """Waits until stop()."""
        await self._stopped.wait()

    async def stop(self, grace: float = 5.0) -> None:
        """Stops the server. Calls in flight may take `grace` seconds."""
        if self._stopped.is_set():
            return
        await asyncio.to_thread(self._service.provider.stop, grace)
        await self.compute_fn.teardown()
        self._stopped.set()

    async def __aenter__(self) -> AsyncComputeServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
