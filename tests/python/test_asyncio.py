"""The client for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
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
        back = await client.options(framework="numpy").send_back({"x": numpy.arange(3)})
        assert isinstance(back["x"], numpy.ndarray)
        with pytest.raises(errors.FunctionFailed, match="no"):
            await client.fail("no")
        with pytest.raises(TypeError, match="cannot be an argument"):
            await client.echo(object())
        assert repr(await client.options(framework="none").send_back(numpy.ones(2))) == "Tensor([2], float64, 'cpu')"

    run(provider, work)


def test_cancelling_the_awaiting_task_cancels_the_call(provider: Any) -> None:
    async def work(client: AsyncClient) -> bool:
        await client.steps(0)
        call = asyncio.create_task(client.steps(60))
        while await client.has_ended(0):  # until the new call has begun
            await asyncio.sleep(0.01)
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


def test_a_task_that_is_awaited_holds_no_thread(provider: Any) -> None:
    async def work(client: AsyncClient) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        tasks = [await client.submit("nap", 60) for _ in range(20)]
        waits = [asyncio.create_task(task.result()) for task in tasks]
        await asyncio.sleep(0.5)
        await asyncio.wait_for(asyncio.to_thread(time.sleep, 0), 10)
        for task, wait in zip(tasks, waits, strict=True):
            await task.cancel()
            with pytest.raises(errors.Cancelled):
                await wait

    run(provider, work)


async def numbers(count: int, pause: float = 0) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(pause)
        yield number


def test_iterators_as_arguments_are_streams(provider: Any) -> None:
    async def work(client: AsyncClient) -> None:
        sums = list(itertools.accumulate(range(300)))
        assert [item async for item in client.stream("running_sum", numbers=numbers(300))] == sums
        assert [item async for item in client.stream("running_sum", iter(range(300)))] == sums
        assert await client.stream("total", numbers(300)).result() == sum(range(300))
        arrays = (numpy.full(1000, n) for n in range(20))
        assert [int(array[0]) async for array in client.stream("doubled", arrays)] == list(range(0, 40, 2))

    run(provider, work)


def test_each_item_is_answered_before_the_next_is_made(provider: Any) -> None:
    """Both directions run at once: an answer decides about the next question."""

    async def work(client: AsyncClient) -> list[float]:
        answers: asyncio.Queue[float] = asyncio.Queue()

        async def questions() -> AsyncIterator[float]:
            yield 1
            while (answer := await answers.get()) < 100:
                yield answer

        seen = []
        async for item in client.stream("running_sum", questions()):
            seen.append(item)
            answers.put_nowait(item)
        return seen

    assert run(provider, work) == [1, 2, 4, 8, 16, 32, 64, 128]


def test_more_streams_than_threads_wait_for_their_turn(provider: Any) -> None:
    async def main() -> None:
        async with AsyncClient(provider.url, concurrency=2) as client:
            calls = [client.stream("total", numbers(50, 0.001)).result() for _ in range(20)]
            other = asyncio.create_task(client.add(1, 2))
            assert await asyncio.gather(*calls) == [sum(range(50))] * 20
            assert await other == 3

    asyncio.run(main())


def test_leaving_a_stream_ends_its_iterator_and_its_threads(provider: Any) -> None:
    closed = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    async def work(client: AsyncClient) -> None:
        before = set(threading.enumerate())
        items = aiter(client.stream("running_sum", endless()))
        assert await anext(items) == 1
        assert set(threading.enumerate()) - before
        await items.aclose()  # type: ignore[attr-defined]
        assert closed == [True]
        deadline = asyncio.get_running_loop().time() + 10
        while set(threading.enumerate()) - before:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)

    run(provider, work)


def test_errors_of_iterators_and_of_functions(provider: Any) -> None:
    async def failing() -> AsyncIterator[Any]:
        yield 1
        raise KeyError("no more")

    async def bad() -> AsyncIterator[Any]:
        yield "no number"
        await asyncio.sleep(60)

    async def work(client: AsyncClient) -> None:
        with pytest.raises(KeyError, match="no more"):
            await client.stream("total", failing()).result()
        with pytest.raises(KeyError, match="no more"):
            _ = [item async for item in client.stream("running_sum", failing())]
        with pytest.raises(TypeError, match="cannot be an argument"):
            await client.stream("total", iter([object()])).result()
        with pytest.raises(errors.InvalidParams):
            await client.stream("total", bad()).result()
        with pytest.raises(errors.InvalidParams):
            await client.stream("total", itertools.chain(["no number"], iter(threading.Event().wait, None))).result()
        with pytest.raises(errors.MethodNotFound):
            await client.stream("nothing", failing()).result()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.stream("total", numbers(10, 60)).result(), 0.2)
        assert await client.add(1, 2) == 3

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
