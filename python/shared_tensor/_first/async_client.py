"""AsyncSharedTensorClient: the client of shared-tensor 0.1 for long work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..client import Client
from .client import SharedTensorClient
from .tasks import Callback, TaskCalls


class AsyncSharedTensorClient(TaskCalls):
    """Submits calls as tasks: `id = client.submit_task("train", [10])`, later `client.get_task_result(id)`.

    `poll_interval`: how often wait_for_task() calls its callback. `url`, instead of `server_port`, and
    `token`: see Client. For asyncio use AsyncClient.
    """

    def __init__(
        self,
        server_port: int = 2537,
        verbose_debug: bool = False,
        poll_interval: float = 1.0,
        *,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        self._first = SharedTensorClient(server_port, url=url, token=token)
        self.server_url = self._first.server_url
        self.verbose_debug = verbose_debug
        self.poll_interval = poll_interval

    @property
    def client(self) -> Client:
        """The Client that makes the calls."""
        return self._first.client

    def close(self) -> None:
        """Closes the connections. The tasks go on."""
        self._first.close()

    def __enter__(self) -> AsyncSharedTensorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def execute_remote_function_async(
    function_path: str,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    server_port: int = 2537,
    verbose_debug: bool = False,
    poll_interval: float = 1.0,
    wait: bool = True,
    timeout: float | None = None,
    callback: Callback | None = None,
) -> Any:
    """One task by a client of its own. Returns its result, or with wait=False its id."""
    with AsyncSharedTensorClient(server_port, verbose_debug, poll_interval) as client:
        return client.execute_function_async(function_path, args, kwargs, options, wait, timeout, callback)
