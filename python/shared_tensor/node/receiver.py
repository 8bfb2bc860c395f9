"""Gives the messages of a node's inbox to coroutines."""

from __future__ import annotations

import asyncio
import collections
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import _core

Message = tuple[str, _core.Tensor]
_PART = 0.25  # seconds: how long the thread waits at a time, so that it ends soon after the program does


class Receiver:
    """A thread waits for messages while a coroutine wants one. Coroutines get messages in the order in which they ask.
    A message that comes for a coroutine that waits no longer is kept for the next. All methods run in the event loop.
    """

    def __init__(self, core: _core.Node) -> None:
        self._core = core
        self._thread = ThreadPoolExecutor(1, "shared_tensor.node")
        self._kept: collections.deque[Message] = collections.deque()  # the thread appends to it
        self._waiting: collections.deque[asyncio.Future[Message | None]] = collections.deque()
        self._asked_by: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def receive(self, timeout: float | None) -> Message | None:
        self._give_kept()
        if not self._waiting and (message := self._at_once()) is not None:
            return message
        if self._closed or timeout == 0:
            return None
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Message | None] = loop.create_future()
        self._waiting.append(waiter)
        self._ask(loop)
        timer = None if timeout is None else loop.call_later(timeout, _give, waiter, None)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (message := waiter.result()) is not None:
                self._kept.appendleft(message)
                self._give_kept()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Ends all receive(): they return None. The node must have been shut down."""
        self._closed = True
        for waiter in self._waiting:
            _give(waiter, None)
        self._waiting.clear()

    def _at_once(self) -> Message | None:
        """A message that is there already. While the thread waits, only the thread takes messages from the inbox: so
        they stay in order."""
        if self._kept:
            return self._kept.popleft()
        thread_waits = self._asked_by is not None and not self._asked_by.is_closed()
        return None if thread_waits else self._core.receive(0.0)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._asked_by is loop:
            return
        self._asked_by = loop
        loop.run_in_executor(self._thread, self._take).add_done_callback(self._took)

    def _take(self) -> None:
        """Runs in the thread."""
        message = self._core.receive(_PART)
        if message is not None:
            self._kept.append(message)

    def _took(self, _: Any) -> None:
        loop, self._asked_by = self._asked_by, None
        self._give_kept()
        if self._waiting and loop is not None:
            self._ask(loop)

    def _give_kept(self) -> None:
        while self._kept and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(self._kept.popleft())
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()


def _give(waiter: asyncio.Future[Message | None], message: Message | None) -> None:
    if not waiter.done():
        waiter.set_result(message)
