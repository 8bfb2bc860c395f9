"""Waits that a signal ends."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

# The kernel may give a signal to a thread of the C++ library. Python then runs the handler on the main thread, but does
# not wake it: so the main thread waits in parts.
_PART = 0.1


@contextlib.contextmanager
def told_to_end() -> Iterator[Callable[[], bool]]:
    """Takes over SIGTERM and SIGINT, on the main thread. Yields a function that says whether one has come."""
    seen: list[int] = []  # an Event may not be set by a handler
    before = {number: signal.signal(number, lambda n, _: seen.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(_PART)


def wait(event: threading.Event, timeout: float | None = None) -> bool:
    """As event.wait(timeout)."""
    if timeout is not None:
        return event.wait(timeout)
    while not event.wait(_PART):
        pass
    return True
