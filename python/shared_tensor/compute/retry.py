"""When a compute client repeats a failed call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import Retry


class RetryStrategy:
    """A strategy of your own overrides execute(). AsyncComputeClient needs an execute() that is `async def`."""

    retry = Retry(tries=1)
    """What the C++ client does by itself, within one call of `func`."""

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `func`, as often as it needs to, and returns its result."""
        return func(*args, **kwargs)


class ExponentialBackoff(RetryStrategy):
    """Repeats after random delays: up to `initial_delay` seconds, then twice as long each time, at most `max_delay`."""

    def __init__(self, max_retries: int = 3, initial_delay: float = 1.0, max_delay: float = 30.0) -> None:
        self.retry = Retry(tries=max_retries + 1, first_delay=initial_delay, longest_delay=max_delay)


class FixedDelay(RetryStrategy):
    """Repeats after `delay` seconds."""

    def __init__(self, max_retries: int = 3, delay: float = 1.0) -> None:
        self.retry = Retry(tries=max_retries + 1, first_delay=delay, longest_delay=delay, random=False)
