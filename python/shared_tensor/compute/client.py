"""Calls a compute server."""

from __future__ import annotations

import asyncio
import inspect
import typing
from typing import Any

from .._addresses import url_of
from ..async_client import AsyncClient
from ..client import Client
from ..errors import ShuttingDown, TransportFailure
from .codecs import TensorCodec
from .retry import ExponentialBackoff, RetryStrategy
from .statistics import Statistics


def _is_served(client: Client) -> bool:
    """Whether the server runs functions. One that ends still answers ping()."""
    try:
        client.call("service_info")
    except (TransportFailure, TimeoutError, ShuttingDown):
        return False
    return True


class _Client:
    """What both clients have in common: the connection that repeats nothing, and the statistics."""

    def __init__(
        self,
        server_address: str,
        timeout: float,
        retry_strategy: RetryStrategy | None,
        codec: TensorCodec | None,
        options: dict[str, Any],
    ) -> None:
        self._retry_strategy = retry_strategy or ExponentialBackoff()
        self._options: dict[str, Any] = {
            "url": url_of(server_address),
            "timeout": timeout,
            **(codec or TensorCodec()).client_options,
            **options,
        }
        self._probe = Client(**{**self._options, "retry": None, "timeout": min(timeout, 5.0)})
        self._statistics = Statistics()

    def get_statistics(self) -> dict[str, Any]:
        """total_requests, successful_requests, failed_requests, success_rate (0 to 1), avg_network_time_ms,
        avg_compute_time_ms and avg_total_time_ms of this client's calls."""
        return self._statistics.report()

    def __repr__(self) -> str:
        return f"<shared_tensor.compute.{type(self).__name__} {self._probe.url}>"


class ComputeClient(_Client):
    """Calls the compute server at "host:port". `with ComputeClient(...)` closes it.

    timeout: seconds for a call with all its repeats. retry_strategy: when a failed call is repeated; None:
    ExponentialBackoff(). codec: CompressedTensorCodec for slow networks. idempotent: False if the function has a state:
    then a call is not repeated if it may have run. `options` are those of Client (token, certificate, ...).

    Any thread may use it. Errors: children of RpcError, after the last repeat.
    """

    def __init__(
        self,
        server_address: str,
        timeout: float = 30.0,
        retry_strategy: RetryStrategy | None = None,
        codec: TensorCodec | None = None,
        *,
        idempotent: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(server_address, timeout, retry_strategy, codec, options)
        self._client = Client(**self._options, retry=self._retry_strategy.retry).options(
            receipt=True, idempotent=idempotent
        )

    def connect(self) -> bool:
        """Returns whether the server runs functions. Repeats as the retry strategy says."""
        return _is_served(self._client)

    def compute(self, input_tensor: Any) -> Any:
        """Runs the server's function. Blocks. The result has the framework of `input_tensor`."""
        return self._retry_strategy.execute(self._compute_once, input_tensor)

    def _compute_once(self, input_tensor: Any) -> Any:
        try:
            result = self._client.call("compute", input_tensor)
        except BaseException:
            self._statistics.count(None)
            raise
        self._statistics.count(self._client.last_receipt)
        return result

    def health_check(self) -> bool:
        """Returns whether the server runs functions now, without repeats."""
        return _is_served(self._probe)

    def get_service_info(self) -> dict[str, Any]:
        """service_name, version, device, total_requests, uptime_seconds and custom_info of the server."""
        return typing.cast("dict[str, Any]", self._client.call("service_info"))

    def close(self) -> None:
        """Ends the calls in flight. Later calls fail."""
        self._client.close()
        self._probe.close()

    def __enter__(self) -> ComputeClient:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncComputeClient(_Client):
    """As ComputeClient, for asyncio. One event loop uses it. Cancelling the awaiting task cancels the call."""

    def __init__(
        self,
        server_address: str,
        timeout: float = 30.0,
        retry_strategy: RetryStrategy | None = None,
        codec: TensorCodec | None = None,
        *,
        idempotent: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(server_address, timeout, retry_strategy, codec, options)
        own = type(self._retry_strategy).execute
        if own is not RetryStrategy.execute and not inspect.iscoroutinefunction(own):
            raise TypeError("AsyncComputeClient needs a retry strategy whose execute() is `async def`")
        self._client = AsyncClient(**self._options, retry=self._retry_strategy.retry).options(
            receipt=True, idempotent=idempotent
        )

    async def connect(self) -> bool:
        """Returns whether the server runs functions. Repeats as the retry strategy says."""
        return await asyncio.to_thread(_is_served, self._client._blocking)

    async def compute(self, input_tensor: Any) -> Any:
        """Runs the server's function. The result has the framework of `input_tensor`."""
        return await self._retry_strategy.execute(self._compute_once, input_tensor)

    async def _compute_once(self, input_tensor: Any) -> Any:
        try:
            result = await self._client.call("compute", input_tensor)
        except BaseException:
            self._statistics.count(None)
            raise
        self._statistics.count(self._client.last_receipt)
        return result

    async def health_check(self) -> bool:
        """Returns whether the server runs functions now, without repeats."""
        return await asyncio.to_thread(_is_served, self._probe)

    async def get_service_info(self) -> dict[str, Any]:
        """As ComputeClient.get_service_info()."""
        return typing.cast("dict[str, Any]", await self._client.call("service_info"))

    async def close(self) -> None:
        """Ends the calls in flight. Later calls fail."""
        await self._client.close()
        self._probe.close()

    async def __aenter__(self) -> AsyncComputeClient:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
