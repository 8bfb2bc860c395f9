"""AsyncSharedTensorProvider: shared functions whose calls are tasks, as in shared-tensor 0.1."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from ._first.tasks import Callback, TaskCalls
from .provider import SharedTensorProvider

P = ParamSpec("P")
R = TypeVar("R")


class SharedFunction(Generic[P, R]):
    """A shared function. In a process that does not serve, a call is a task in the server: it has no deadline, and it
    goes on if this process ends."""

    def __init__(self, provider: AsyncSharedTensorProvider, function: Callable[P, R], name: str, wait: bool) -> None:
        functools.update_wrapper(self, function)
        self._provider = provider
        self._function = function
        self._name = name
        self._wait = wait
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Returns the function's result; with wait=False the id of the task."""
        if self._provider._local:
            return self._function(*args, **kwargs)
        return typing.cast(R, self._execute(args, kwargs, self._wait, None, None))

    def submit_async(self, *args: Any, **kwargs: Any) -> str:
        """Starts the call as a task and returns its id."""
        return typing.cast(str, self._execute(args, kwargs, False, None, None))

    def execute_async(
        self,
        *args: Any,
        wait: bool | None = None,
        timeout: float | None = None,
        callback: Callback | None = None,
        **kwargs: Any,
    ) -> Any:
        """As a call, with other options for this one: see AsyncSharedTensorClient.wait_for_task()."""
        return self._execute(args, kwargs, self._wait if wait is None else wait, timeout, callback)

    def _execute(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wait: bool,
        timeout: float | None,
        callback: Callback | None,
    ) -> Any:
        named = self._signature.bind(*args, **kwargs).arguments
        return self._provider.execute_function_async(self._name, (), named, None, wait, timeout, callback)


class AsyncSharedTensorProvider(SharedTensorProvider, TaskCalls):
    """As SharedTensorProvider, but each call of a shared function is a task. `poll_interval`: how often the callback of
    a waiting call is called. Also has the methods of AsyncSharedTensorClient."""

    def __init__(
        self,
        server_port: int | None = None,
        verbose_debug: bool = False,
        poll_interval: float = 1.0,
        default_enabled: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(server_port, verbose_debug=verbose_debug, default_enabled=default_enabled, **options)
        self.poll_interval = poll_interval

    def share(
        self, name: str | None = None, wait: bool = True, **options: Any
    ) -> Callable[[Callable[P, R]], SharedFunction[P, R]]:
        """Shares a function. wait=False: a call returns the id of its task at once. Other options: see
        SharedTensorProvider.share()."""
        share = super().share(name, **options)

        def decorate(function: Callable[P, R]) -> SharedFunction[P, R]:
            return SharedFunction(self, share(function), name or function.__name__, wait)

        return decorate


__all__ = ["AsyncSharedTensorProvider", "SharedFunction"]
