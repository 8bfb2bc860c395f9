"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy
import pytest

from shared_tensor import errors
from shared_tensor.async_client import AsyncClient

Work = Callable[[AsyncClient], Awaitable[Any]]


def run(provider: Any, work: Work) -> Any:
    async def main() -> Any:
        async with AsyncClient(provider.url) as client:
            return await work(client)

    return asyncio.run(main())


def test_a_thousand_calls_in_flight(provider: Any) -> None:
    async def work(client: AsyncClient) -> list[float]:
        return await asyncio.gather(*(client.add(n, b=n) for n in range(1000)))

    assert run(provider, work) == [2 * n for n in range(1000)]


def test_results_errors_and_tensors(provider: Any) -> None:
    async def work(client: AsyncClient) -> None:
        back = await client.send_back({"x": numpy.arange(3)})
        assert isinstance(back["x"], numpy.ndarray)
        with pytest.raises(errors.FunctionFailed, match="no"):
            await client.fail("no")
        with pytest.raises(TypeError, match="cannot be an argument"):
            await client.echo(object())
        assert repr(await client.options(framework="none").send_back(numpy.ones(2))) == "Tensor([2], float64, 'cpu')"

    run(provider, work)


def test_cancelling_the_awaiting_task_cancels_the_call(provider: Any) -> None:
    async def work(client: AsyncClient) -> bool:
        call = asyncio.create_task(client.steps(60))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return bool(await client.has_ended(10))

    assert run(provider, work)


def test_a_timeout_of_asyncio_leaves_the_loop_usable(provider: Any) -> None:
    async def work(client: AsyncClient) -> float:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.steps(60), 0.2)
        return float(await client.add(1, 2))

    assert run(provider, work) == 3


def test_tasks_and_streams(provider: Any) -> None:
    async def work(client: AsyncClient) -> None:
        task = await client.submit("steps", 0.1)
        assert [status.state async for status in task][-1] == "completed"
        assert await task == 10
        assert [item async for item in client.stream("count", 4)] == [0, 1, 2, 3]
        async for item in client.stream("count", 1_000_000):
            if item == 3:
                break

    run(provider, work)


def test_a_closed_client_ends_its_calls(provider: Any) -> None:
    async def main() -> None:
        client = AsyncClient(provider.url)
        call = asyncio.create_task(client.steps(60))
        await asyncio.sleep(0.2)
        await client.close()
        with pytest.raises(errors.Cancelled):
            await call
        with pytest.raises(RuntimeError, match="closed"):
            await client.add(1)

    asyncio.run(main())


def test_each_task_has_the_receipt_of_its_last_call(provider: Any) -> None:
    async def work(client: AsyncClient) -> None:
        receipts = client.options(receipt=True)

        async def send(count: int) -> int:
            await receipts.send_back([numpy.ones(3)] * count)
            assert receipts.last_receipt is not None
            return sum(tensors for _, tensors, _ in receipts.last_receipt.transports)

        tasks = [asyncio.create_task(send(count)) for count in range(1, 6)]
        assert await asyncio.gather(*tasks) == [2, 4, 6, 8, 10]  # arguments and results
        assert receipts.last_receipt is None
        with pytest.raises(errors.FunctionFailed):
            await receipts.fail("no")
        assert receipts.last_receipt is not None and receipts.last_receipt.run is not None
        assert client.last_receipt is None

    run(provider, work)
