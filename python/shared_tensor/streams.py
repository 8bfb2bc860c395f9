"""Sends tensors to a server, receives tensors from it, or both at once, with the API that users of KPU know.

    class Doubling(TensorServicer):
        def _process_tensor(self, tensor):
            return tensor * 2

    asyncio.run(serve(Doubling()))                          # in the server

    async with TensorClient() as client:                    # in another process
        processed = await client.stream_tensors(tensor)

docs/other_projects.md tells what differs. Each tensor is one item of a stream, and is not cut into chunks.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .client import Client
from .provider import SharedTensorProvider


@dataclass(frozen=True)
class TensorResponse:
    """The answer to send_tensors(). A failed call raises an exception instead."""

    success: bool
    message: str
    received_tensor_ids: list[str]


class TensorServicer:
    """A server of tensors. Override `_process_tensor` and `_get_tensor_to_send`; the server runs them on its threads,
    several calls at once.

    keep_received: how many of the tensors that clients sent stay in `received_tensors`, by id; the oldest are dropped
    first. framework: of the tensors that the methods get: "torch", "numpy" or "jax"; None: torch if it is imported,
    else NumPy.
    """

    def __init__(self, *, keep_received: int = 100, framework: str | None = None) -> None:
        self.received_tensors: dict[str, Any] = {}
        self._keep_received = keep_received
        self._lock = threading.Lock()
        self._provider = SharedTensorProvider(execution_mode="server", name=type(self).__name__)
        for function in (self._receive_tensors, self._send_tensors, self._stream_tensors):
            self._provider.register(function.__name__.lstrip("_"), function, framework=framework)

    def _process_tensor(self, tensor: Any) -> Any:
        """Returns the answer to a tensor of stream_tensors(). This one returns the tensor itself."""
        return tensor

    def _get_tensor_to_send(self, index: int, parameters: dict[str, Any]) -> Any:
        """Returns tensor number `index` for receive_tensors()."""
        raise NotImplementedError(f"{type(self).__name__} has no tensors to send: override _get_tensor_to_send()")

    # ---- the functions that clients call

    def _receive_tensors(self, tensors: Iterator[Any]) -> dict[str, Any]:
        """Takes tensors, and returns their ids."""
        ids = [self._keep(tensor) for tensor in tensors]
        return {"success": True, "message": f"Received {len(ids)} tensor(s)", "received_tensor_ids": ids}

    def _keep(self, tensor: Any) -> str:
        tensor_id = uuid.uuid4().hex
        with self._lock:
            self.received_tensors[tensor_id] = tensor
            while len(self.received_tensors) > self._keep_received:
                del self.received_tensors[next(iter(self.received_tensors))]
        return tensor_id

    def _send_tensors(self, count: int = 1, parameters: dict[str, Any] | None = None) -> Iterator[Any]:
        """Yields `count` tensors, at least one."""
        for index in range(max(count, 1)):
            yield self._get_tensor_to_send(index, dict(parameters or {}))

    def _stream_tensors(self, tensors: Iterator[Any]) -> Iterator[Any]:
        """Yields the answer to each tensor."""
        for tensor in tensors:
            yield self._process_tensor(tensor)

    # ---- serving

    def start(
        self,
        host: str = "127.0.0.1",
        port: int = 50051,
        *,
        token_file: str = "",
        insecure: bool = False,
        workers: int = 0,
    ) -> str:
        """Starts to serve, on threads, and returns the URL. Does not block. port: 0: any free port. workers: streams
        that run at once; 0: at least 4."""
        return self._provider.start(port, host, token_file=token_file, insecure=insecure, workers=workers)

    def stop(self, grace: float = 5.0) -> None:
        """Stops the server: blocks until the streams in flight have ended, at most `grace` seconds."""
        self._provider.stop(grace)


async def serve(
    servicer: TensorServicer | None = None, host: str = "127.0.0.1", port: int = 50051, **options: Any
) -> None:
    """Serves until the awaiting task is cancelled, by Ctrl-C for example. `options` are those of start()."""
    servicer = servicer or TensorServicer()
    await asyncio.to_thread(functools.partial(servicer.start, host, port, **options))
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.to_thread(servicer.stop)


class TensorClient:
    """Exchanges tensors with a TensorServicer. `async with` closes it. Errors: children of RpcError.

    token: for a server that needs one. timeout: seconds for a call with all its tensors. `options` are those of Client.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 50051,
        *,
        token: str | None = None,
        timeout: float = 300.0,
        **options: Any,
    ) -> None:
        self._client = Client(f"http://{host}:{port}", token, timeout, **options)

    async def send_tensors(self, *tensors: Any) -> TensorResponse:
        """Sends tensors to the server, and returns when it has all of them."""
        return await asyncio.to_thread(self._send, tensors)

    def _send(self, tensors: tuple[Any, ...]) -> TensorResponse:
        with self._client.stream("receive_tensors", iter(tensors)) as call:
            return TensorResponse(**call.result())

    async def receive_tensors(self, count: int = 1, parameters: dict[str, Any] | None = None) -> list[Any]:
        """Receives `count` tensors from the server."""
        return await asyncio.to_thread(self._all_of, "send_tensors", count, parameters or {})

    def _all_of(self, function: str, *arguments: Any) -> list[Any]:
        with self._client.stream(function, *arguments) as call:
            return list(call)

    async def stream_tensors(self, *tensors: Any) -> list[Any]:
        """Sends tensors, and returns the server's answer to each of them."""
        return await asyncio.to_thread(self._all_of, "stream_tensors", iter(tensors))

    async def close(self) -> None:
        """Ends the calls in flight. Later calls fail."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> TensorClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
