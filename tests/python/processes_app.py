"""A provider for test_processes.py: it serves when it is run, and worker processes import it."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from shared_tensor import Context, SharedTensorProvider

provider = SharedTensorProvider()
hidden = [SharedTensorProvider(execution_mode="server")]  # no global variable of its own


class Tally:
    def __init__(self) -> None:
        self.sum = 0


@provider.share()
def pid() -> int:
    return os.getpid()


@provider.share()
def scale(context: Context, x: np.ndarray, factor: float) -> np.ndarray:
    made: np.ndarray = context.empty(x.shape, "float32", "numpy")
    np.multiply(x, factor, out=made)
    return made


@provider.share()
def count(seconds: float) -> int:
    """Uses one core, and holds the GIL. Returns the process."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return os.getpid()


@provider.share()
def die(how: str) -> None:
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)


@provider.share()
def tally() -> Tally:
    return Tally()


@provider.share()
def add(to: Tally, number: int) -> list[int]:
    to.sum += number
    return [to.sum, os.getpid()]


if __name__ == "__main__":
    provider.serve(0, processes=int(sys.argv[1]), ready_file=sys.argv[2])
