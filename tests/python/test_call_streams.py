"""Functions with streams, in both directions and of both kinds of Python, and how they end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import until

import shared_tensor
from shared_tensor import errors
from shared_tensor._function import EventLoop


def test_streams_in_out_and_both(client: shared_tensor.Client) -> None:
    assert list(client.stream("count", 5)) == [0, 1, 2, 3, 4]
    assert list(client.stream("ticks", 3)) == [0, 1, 2]
    sum_of = client.stream("total")
    with sum_of.writer() as numbers:
        assert all(numbers.write(number) for number in range(10))
    assert sum_of.result() == 45


ASYNC_PROVIDER = """
import asyncio, os, time
from collections.abc import AsyncIterator
from shared_tensor import Client, SharedTensorProvider

def serve():
    provider = SharedTensorProvider(0, execution_mode="server")

    @provider.share()
    async def doubled(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number

    return provider, Client(provider.start(0, workers=64), timeout=20)
"""
IDLE_STREAMS = """
provider, client = serve()
idle = [client.options(timeout=60).stream("doubled") for _ in range((os.cpu_count() or 1) + 8)]
writers = [stream.writer() for stream in idle]
time.sleep(0.5)
print(list(client.stream("doubled", iter([1, 2]))))
for stream in idle:
    stream.cancel()
"""
AFTER_FORK = """
provider, client = serve()
assert list(client.stream("doubled", iter([1]))) == [2]
if child := os.fork():
    os.waitpid(child, 0)
else:
    other, client = serve()
    print(list(client.stream("doubled", iter([1, 2]))), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("program", [IDLE_STREAMS, AFTER_FORK], ids=["beside_idle_streams", "after_fork"])
def test_async_streams_run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", ASYNC_PROVIDER + program], capture_output=True, text=True)
    assert done.stdout == "[2, 4]\n", done.stderr


def test_a_result_that_comes_as_the_wait_ends_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()

    def result(timeout: float | None = None) -> int:
        if timeout is not None:
            future.set_result(1)
            raise concurrent.futures.TimeoutError
        return 1

    monkeypatch.setattr(future, "result", result)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda work, loop: future)
    assert EventLoop(asyncio.new_event_loop()).run(None, None) == 1  # type: ignore[arg-type]


def test_an_iterator_as_an_argument_is_a_stream(client: shared_tensor.Client) -> None:
    assert client.stream("total", numbers=iter([1, 2, 3])).result() == 6
    assert list(client.stream("running_sum", (n for n in range(1, 2000)))) == list(itertools.accumulate(range(1, 2000)))
    endless = client.stream("running_sum", numbers=itertools.count())
    assert next(iter(endless)) == 0
    with pytest.raises(TypeError, match="names of the parameters"):
        client.stream("running_sum", iter([1]), iter([2]))
    with pytest.raises(errors.InvalidParams):
        client.stream("total", [1, 2]).result()  # a list is a value, and the function has no such parameter


def test_an_iterator_of_a_wrong_name_ends_the_other_iterators(client: shared_tensor.Client) -> None:
    def streams() -> int:
        return sum(thread.name == "shared_tensor stream" for thread in threading.enumerate())

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            time.sleep(0.01)
            yield number

    before = streams()
    with pytest.raises(ValueError, match="the function reads numbers"):
        client.stream("total", numbers=numbers(), nmbers=iter([1]))
    until(lambda: streams() <= before)


def test_an_iterator_that_raises_ends_the_call_with_its_exception(client: shared_tensor.Client) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        client.stream("total", numbers()).result()
    with pytest.raises(KeyError, match="no more"):
        list(client.stream("running_sum", numbers()))
    with pytest.raises(TypeError, match="cannot be an argument"):
        client.stream("total", iter([object()])).result()


def test_an_iterator_that_blocks_does_not_hold_up_the_calls_end(client: shared_tensor.Client) -> None:
    def numbers() -> Iterator[Any]:
        yield "no number"
        threading.Event().wait()

    with pytest.raises(errors.InvalidParams):
        client.stream("total", numbers()).result()


def test_an_exception_in_the_writers_block_cancels_the_call(client: shared_tensor.Client) -> None:
    call = client.stream("total")
    with pytest.raises(KeyError), call.writer() as numbers:
        numbers.write(1)
        raise KeyError
    with pytest.raises(errors.Cancelled):  # not the sum of a part
        call.result()


def test_a_bad_item_of_a_stream_is_the_callers_mistake(client: shared_tensor.Client) -> None:
    call = client.stream("total")
    with call.writer() as numbers:
        numbers.write("x")
    with pytest.raises(errors.InvalidParams, match="number"):
        call.result()
