"""The provider that the tests with Ray deploy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy

from shared_tensor import SharedTensorProvider

provider = SharedTensorProvider(name="maths")


@provider.share(idempotent=True)
def double(x: numpy.ndarray) -> numpy.ndarray:
    return x * 2


@provider.share()
def one() -> int:
    return 1


@provider.share(idempotent=True)
def pid(seconds: float = 0) -> int:
    time.sleep(seconds)
    return os.getpid()


@provider.share()
def enter(ledger: str, word: str, seconds: float = 0) -> int:
    """Counts its runs."""
    with open(ledger, "a") as file:
        file.write(word + "\n")
    time.sleep(seconds)
    return os.getpid()


@provider.share()
def fail() -> None:
    raise ValueError("wrong")


@provider.share()
def count(n: int) -> Iterator[int]:
    yield from range(n)
