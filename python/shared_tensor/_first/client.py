"""SharedTensorClient: the client of shared-tensor 0.1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..client import Client
from ..errors import RpcError
from ..records import Retry
from .log import debug


def function_name(path: str) -> str:
    """The name of a function. shared-tensor 0.1.2 put the module before it: "package.module:name"."""
    return path.rpartition(":")[2]


class SharedTensorClient:
    """Calls functions: `client.call_function("add", [1, 2], {"factor": 3})`.

    `timeout`: seconds for each call with all its tries. `retry_count`: how often a call is repeated that is safe to
    repeat. `verbose_debug`: the logger "shared_tensor" gets each call with its arguments. `url`, instead of
    `server_port`, and `token`: see Client.

    `client` is the Client that makes the calls. It offers more: streams, batches, receipts.
    """

    def __init__(
        self,
        server_port: int = 2537,
        timeout: float | None = 30,
        retry_count: int = 3,
        verbose_debug: bool = False,
        *,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        self.server_url = url or f"http://127.0.0.1:{server_port}"
        self.timeout = timeout
        self.verbose_debug = verbose_debug
        self.client = Client(self.server_url, token, timeout, Retry(tries=retry_count + 1))

    def call_function(self, function: str, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls a function of the server and returns its result. Blocks. Raises a child of RpcError."""
        positional, named = tuple(args), dict(kwargs or {})
        if self.verbose_debug:
            debug("call %s at %s: args=%r, kwargs=%r", function, self.server_url, positional, named)
        return self.client.call(function, *positional, **named)

    def execute_function(
        self,
        function_path: str,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """The same for a path "package.module:name", of which the name counts. The function's own options hold, not
        `options`."""
        return self.call_function(function_name(function_path), args, kwargs)

    def ping(self) -> bool:
        """Whether the server answers."""
        try:
            self.client.ping()
        except RpcError:
            return False
        return True

    def get_server_info(self) -> dict[str, Any]:
        """The answer of server.info."""
        return self.client.info()

    def list_functions(self) -> dict[str, str]:
        """The name of each function of the server, with its docstring."""
        methods = self.client.discover()["methods"]
        return {entry["name"]: entry.get("summary", "") for entry in methods if not entry.get("x-builtin")}

    def close(self) -> None:
        """Ends the calls in flight. Later calls fail."""
        self.client.close()

    def __enter__(self) -> SharedTensorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shared_tensor.SharedTensorClient {self.server_url}>"


def execute_remote_function(
    function_path: str,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    server_port: int = 2537,
    timeout: float | None = 30,
    verbose_debug: bool = False,
) -> Any:
    """One call by a client of its own."""
    with SharedTensorClient(server_port, timeout, verbose_debug=verbose_debug) as client:
        return client.execute_function(function_path, args, kwargs)
