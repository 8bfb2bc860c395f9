"""SharedTensorServer: the server class of shared-tensor 0.1."""

from __future__ import annotations

import threading
from typing import Any

from .._signals import wait
from ..provider import SharedTensorProvider, providers
from . import log


class SharedTensorServer:
    """Serves the functions of one provider, or of all providers of this process.

    `timeout`: deadline in seconds of calls without their own. `max_workers`: threads that run functions.
    `enable_cache`: whether results of functions with `cached` are kept. `debug`: the logger "shared_tensor" gets a line
    about each start and end. `host`: an address beyond loopback needs `token_file` (lines NAME:SECRET, mode 0600), or
    `insecure` in a network that is trusted. `provider`: None: all providers that the process has made so far, but those
    with execution_mode="client" or a `url`. `options`: see SharedTensorProvider.start().
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 2537,
        timeout: float = 30,
        max_workers: int = 4,
        enable_cache: bool = True,
        debug: bool = False,
        *,
        provider: SharedTensorProvider | None = None,
        token_file: str = "",
        insecure: bool = False,
        **options: Any,
    ) -> None:
        self.host = host
        self.port = port
        self.timeout = timeout
        self.max_workers = max_workers
        self.enable_cache = enable_cache
        self.debug = debug
        self._provider = provider
        self._options = {"token_file": token_file, "insecure": insecure, **options}
        self._served: SharedTensorProvider | None = None
        self._ended = threading.Event()

    @property
    def running(self) -> bool:
        """Whether it serves."""
        return self._served is not None

    @property
    def url(self) -> str:
        """The server's url. Raises RuntimeError if it does not serve."""
        if self._served is None:
            raise RuntimeError("the server does not run: call start()")
        return self._served.url

    def start(self, blocking: bool = True) -> None:
        """Starts to serve. `blocking`: returns when another thread has called stop(), or raises KeyboardInterrupt."""
        if self.running:
            raise RuntimeError("the server runs already")
        self._ended.clear()
        self._served = self._start(_together(providers()) if self._provider is None else self._provider)
        if self.debug:
            log.debug("%d functions at %s", len(self._served._registered_functions), self.url)
        if blocking:
            try:
                wait(self._ended)
            finally:
                self.stop()

    def _start(self, provider: SharedTensorProvider) -> SharedTensorProvider:
        provider.start(
            self.port,
            self.host,
            workers=self.max_workers,
            timeout=self.timeout,
            cache=self.enable_cache,
            **self._options,
        )
        return provider

    def stop(self) -> None:
        """Ends the server: blocks until the calls in flight have ended, at most 10 s."""
        served, self._served = self._served, None
        if served is not None:
            served.stop()
            if self.debug:
                log.debug("ended: %s:%d", self.host, self.port)
        self._ended.set()

    def __enter__(self) -> SharedTensorServer:
        self.start(blocking=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _together(all_of_them: list[SharedTensorProvider]) -> SharedTensorProvider:
    """Returns one provider with the functions of all. Calls of these functions in this process run here."""
    if len(all_of_them) == 1:
        return all_of_them[0]
    together = SharedTensorProvider(execution_mode="server")
    for provider in all_of_them:
        for name, definition in provider._registered_functions.items():
            if name in together._registered_functions:
                raise ValueError(f"two providers share a function {name}: give one another name, or say provider=")
            together._registered_functions[name] = definition
        provider.execution_mode = "server"
    if not together._registered_functions:
        raise ValueError("this process shares no function: import the module of the provider first, or say provider=")
    return together
