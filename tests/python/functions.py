"""The functions that the tests call, in a process of their own."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, TypedDict

import numpy

from shared_tensor import Context, SharedTensorProvider, Tensor

provider = SharedTensorProvider(name="functions", version="7")


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


@dataclasses.dataclass
class Box:
    width: float
    height: float
    label: str = ""


class Options(TypedDict, total=False):
    rounds: int
    kind: Literal["a", "b"]


@provider.share()
def echo(value: Any) -> Any:
    """Returns its argument."""
    return value


@provider.share(idempotent=True)
def add(a: float, b: float = 1.0) -> float:
    """The sum of two numbers."""
    return a + b


@provider.share(batched=(4, 10.0))
def joined(x: numpy.ndarray, offset: float = 0.0) -> dict[str, Any]:
    """x + offset, and for each row how many rows the run had."""
    if (x < 0).any():
        raise ValueError("below zero")
    return {"sums": x + offset, "rows": [len(x)] * len(x)}


@provider.share()
def area(box: Box, mode: Mode = Mode.FAST) -> dict[str, Any]:
    assert isinstance(box, Box) and isinstance(mode, Mode)
    return {"area": box.width * box.height, "mode": mode, "box": box}


@provider.share()
def typed(
    whole: int, text: str, raw: bytes, pair: tuple[int, str], maybe: int | None = None, options: Options | None = None
) -> list[str]:
    return [repr(value) for value in (whole, text, raw, pair, maybe, options)]


@provider.share()
def scale(x: Annotated[numpy.ndarray, "float32, any shape"], factor: float = 2.0) -> numpy.ndarray:
    """x multiplied by factor."""
    assert isinstance(x, numpy.ndarray)
    return x * numpy.asarray(factor, dtype=x.dtype)


@provider.share(framework="none")
def describe(x: Tensor) -> list[Any]:
    return [list(x.shape), list(x.strides), x.dtype, x.device]


@provider.share(framework="none")
def send_back(x: Any) -> Any:
    return x


@provider.share()
def fail(text: str) -> None:
    raise ValueError(text)


@provider.share()
def fall(depth: int) -> None:
    if depth == 0:
        raise RecursionError("no way out")
    fall(depth - 1)


@provider.share()
def count(up_to: int) -> Iterator[int]:
    yield from range(up_to)


@provider.share()
async def ticks(up_to: int) -> AsyncIterator[int]:
    for number in range(up_to):
        await asyncio.sleep(0.001)
        yield number


@provider.share()
def total(numbers: Iterator[float]) -> float:
    return sum(numbers)


@provider.share()
def doubled(arrays: Iterator[numpy.ndarray]) -> Iterator[numpy.ndarray]:
    for array in arrays:
        yield array * 2


@provider.share()
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


ended = threading.Event()


@provider.share()
async def long_nap() -> None:
    ended.clear()
    try:
        await asyncio.sleep(60)
    finally:
        ended.set()


@provider.share()
def steps(context: Context, seconds: float) -> int:
    ended.clear()
    try:
        for step in range(10):
            context.progress(step / 10, f"step {step}")
            if not context.sleep(seconds / 10):
                context.check_cancelled()
        return 10
    finally:
        ended.set()


@provider.share()
def has_ended(timeout: float) -> bool:
    return ended.wait(timeout)


@provider.share()
def who(context: Context) -> str:
    return context.principal


calls = 0


@provider.share(cached=True)
def counted(key: str) -> int:
    global calls
    calls += 1
    return calls


class Model:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: numpy.ndarray) -> numpy.ndarray:
        return x * self.factor


@provider.share()
def create(factor: float) -> Model:
    return Model(factor)


@provider.share()
def create_all(factors: list[float]) -> dict[str, Any]:
    return {"made": [Model(factor) for factor in factors], "count": len(factors)}


@provider.share()
def use(model: Model, x: numpy.ndarray) -> numpy.ndarray:
    return model.apply(x)


provider.register("three.apply", Model(3.0).apply)


@provider.share(task=True)
def train(rounds: int) -> int:
    time.sleep(0.01 * rounds)
    return rounds


kept: dict[int, numpy.ndarray] = {}


@provider.share()
def kept_ones(size: int, context: Context) -> numpy.ndarray:
    if size not in kept:
        kept[size] = context.empty((size,), numpy.float32, framework="numpy")
        kept[size][:] = 1
    return kept[size]


@provider.share()
def tokens(count: int) -> Iterator[str]:
    yield from ["one", "two", "three", "four", "five"][:count]


@provider.share()
def running_sum(numbers: Iterator[float]) -> Iterator[float]:
    result = 0.0
    for number in numbers:
        result += number
        yield result


@provider.share()
def end_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
