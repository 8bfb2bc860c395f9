"""Shares Python functions: `@provider.share()`, then `provider.serve()`."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import _core
from ._addresses import TOKEN_FILE, reject_open_host
from ._first.log import debug
from ._first.singleton import once_per_key
from ._function import Definition
from ._options import option_texts
from ._signals import told_to_end, wait_until
from .client import Client
from .records import WorkerProcess
from .remote import function_of

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .ray import Handle

P = ParamSpec("P")
R = TypeVar("R")


def default_port() -> int:
    """2537 plus RANK (else LOCAL_RANK)."""
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    return 2537 + int(rank)


# A worker process is importing the provider's module (_worker.py).
_imported_by_worker = False

_PROVIDERS: weakref.WeakSet[SharedTensorProvider] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A server's threads run Python, so they must end before Python does."""
    for provider in list(_PROVIDERS):
        provider.stop(0)


def providers() -> list[SharedTensorProvider]:
    """The providers with functions that this process may serve, ordered by port and name."""
    own = [p for p in _PROVIDERS if p.execution_mode == "server" or (p.execution_mode == "auto" and p._url is None)]
    return sorted(own, key=lambda provider: (provider.server_port, provider.name))


def _write_whole(path: str, text: str) -> None:
    """Nobody sees a part of the file."""
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w") as file:
        file.write(text)
    os.replace(partial, path)


def _imported(module: str, name: str) -> SharedTensorProvider:
    provider: SharedTensorProvider = getattr(importlib.import_module(module), name)
    return provider


def _rebuilt(name: str, version: str, functions: dict[str, Definition]) -> SharedTensorProvider:
    provider = SharedTensorProvider(0, execution_mode="server", name=name, version=version)
    provider._registered_functions = functions
    _PROVIDERS.add(provider)
    return provider


class SharedTensorProvider:
    """Functions that other processes may call. Any thread may use a provider.

        provider = SharedTensorProvider()

        @provider.share()
        def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
            return x * factor

        provider.serve()

    `execution_mode`: "server": share() returns the function itself; this process serves it. "client": share() returns a
    function with the same signature that calls the server at `url` (else at `server_port`). "auto" (the default):
    "server" if the environment's __SHARED_TENSOR_SERVER_MODE__ is "true", else "client" if serve() or start() was not
    called before the first call: so one module can be imported by both sides.

    `verbose_debug`: the logger "shared_tensor" gets each call to the server with its arguments. `default_enabled`:
    False: shared functions run in this process, unless the environment's __SHARED_TENSOR_ENABLED__ is "true".
    """

    def __init__(
        self,
        server_port: int | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        timeout: float | None = 30.0,
        execution_mode: str = "auto",
        name: str = "",
        version: str = "",
        verbose_debug: bool = False,
        default_enabled: bool = True,
    ) -> None:
        if execution_mode not in ("auto", "server", "client"):
            raise ValueError(f"execution_mode={execution_mode!r}: use 'auto', 'server' or 'client'")
        self.server_port = default_port() if server_port is None else server_port
        self.execution_mode = execution_mode
        self.name = name
        self.version = version
        self.verbose_debug = verbose_debug
        enabled = os.environ.get("__SHARED_TENSOR_ENABLED__")
        self._enabled = default_enabled if enabled is None else enabled.lower() in ("true", "1")
        self._url = url
        self._token = token
        self._timeout = timeout
        self._registered_functions: dict[str, Definition] = {}
        self._server: _core.Server | None = None
        self._told_to_end: Callable[[], bool] | None = None
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None
        self._lock = threading.Lock()

    @property
    def _local(self) -> bool:
        """Whether calls of shared functions run in this process."""
        return self._serves or not self._enabled

    @property
    def _serves(self) -> bool:
        if self.execution_mode != "auto":
            return self.execution_mode == "server"
        return os.environ.get("__SHARED_TENSOR_SERVER_MODE__", "").lower() in ("true", "1") or self._server is not None

    def share(
        self,
        name: str | None = None,
        *,
        cached: bool | float = False,
        concurrency: int = 0,
        task: bool = False,
        timeout: float | None = None,
        batched: int | tuple[int, float] | None = None,
        idempotent: bool = False,
        version: str = "",
        framework: Any = None,
        singleton: bool | None = None,
        singleton_key_formatter: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Shares a function. Its name, signature, type hints and docstring tell callers how to call it, and arguments
        are checked against them before the call.

        name: on the wire; default: the function's. cached: equal calls get the same result for an hour, or for this
        number of seconds. concurrency: how many calls may run at once; 0: as many as there are workers. task: only as
        a task (submit), for work of minutes. timeout: deadline in seconds of a call without its own. batched: calls
        that wait at the same time run as one: their tensor arguments are joined along dimension 0, to at most this
        number of rows, and each caller gets its own rows of the result. (rows, seconds): a call also waits so long for
        others. All other arguments must be equal, else the calls run apart; a joined run that fails runs again call by
        call. idempotent: running it twice does no harm; callers are told. version: part of the cache key. framework:
        of the tensors in arguments whose type hint names none: "torch", "numpy", "jax" or "none". singleton: the
        function runs once for each set of arguments, and the result is kept: all callers use the same model.
        singleton_key_formatter: says which calls get the same result: "{size}" makes one result for each value of the
        argument `size`.

        Raises TypeError for parameters or type hints that callers cannot be told, ValueError for a name that is taken,
        and RuntimeError once the provider serves.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if singleton or (singleton is None and singleton_key_formatter is not None):
                function = once_per_key(function, name or function.__name__, singleton_key_formatter)
            definition = Definition(
                function,
                name=name,
                cached=cached,
                concurrency=concurrency,
                task=task,
                timeout=timeout,
                batched=batched,
                idempotent=idempotent,
                version=version,
                framework=framework,
            )
            if definition.name in self._registered_functions:
                raise ValueError(f"a function is shared as {definition.name} already")
            if self._server is not None:
                raise RuntimeError("share functions before the provider serves")
            self._registered_functions[definition.name] = definition
            _PROVIDERS.add(self)
            return self._stub(function, definition)

        if callable(name):
            raise TypeError("write @provider.share() with parentheses")
        return decorate

    def _stub(self, function: Callable[P, R], definition: Definition) -> Callable[P, R]:
        remote = function_of(function, definition, lambda: self.client, lambda: self.async_client)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._local:
                return function(*args, **kwargs)
            if self.verbose_debug:
                debug("call %s at %s: args=%r, kwargs=%r", definition.name, self.client.url, args, kwargs)
            result: R = remote(*args, **kwargs)
            return result

        return call

    def register(self, name: str, function: Callable[..., Any], **options: Any) -> None:
        """Shares a function that exists already, a bound method for example. `options`: see share()."""
        self.share(name, **options)(function)

    def _target(self) -> str | None:
        if self._url is None and not os.environ.get("SHARED_TENSOR_URL"):
            return f"http://127.0.0.1:{self.server_port}"
        return self._url

    @property
    def client(self) -> Client:
        """The client that calls the server, where this process does not serve."""
        with self._lock:
            if self._client is None:
                self._client = Client(self._target(), self._token, timeout=self._timeout)
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The client of `async def` functions, where this process does not serve."""
        from .async_client import AsyncClient

        with self._lock:
            if self._async_client is None:
                self._async_client = AsyncClient(self._target(), self._token, timeout=self._timeout)
            return self._async_client

    def close(self) -> None:
        """Closes the connections to the server. A later call makes new ones."""
        with self._lock:
            client, self._client = self._client, None
            later, self._async_client = self._async_client, None
        if client is not None:
            client.close()
        if later is not None:
            later._close()

    # ---- serving

    def start(
        self,
        port: int | None = None,
        host: str = "127.0.0.1",
        *,
        unix_socket: str = "",
        local_socket: str = "auto",
        token_file: str = "",
        insecure: bool = False,
        workers: int = 0,
        queue: int = 1024,
        timeout: float = 30.0,
        cache: bool = True,
        models: list[str] | None = None,
        compression_level: int = 1,
        processes: int = 0,
        **options: Any,
    ) -> str:
        """Starts to serve, on threads of the C++ server, and returns the URL. Does not block, but for `processes`.

        port: 0: any free port; None: server_port. host: other addresses than loopback need a token file or `insecure`.
        workers: threads that run functions; 0: at least 4. processes: so many worker processes run the functions, each
        with its own interpreter and `workers` threads; 0: this process does. A worker process imports the provider's
        module; it is started again when it crashes, which its calls get as WorkerDied. Blocks until all are ready.
        queue: calls that may wait for one. timeout: deadline in
        seconds of calls without their own. compression_level: 1 (fast) to 9 (small), for answers to clients on other
        hosts that ask for compression. options: every other option of docs/options.md, with "_" for "-":
        max_kept_bytes="1G" or 2**30, max_wait=30 (seconds) or "30s", allowed_host=["name"].
        """
        if self._server is not None:
            raise RuntimeError("the provider serves already")
        if _imported_by_worker:
            raise RuntimeError('a worker process imports this module: serve only `if __name__ == "__main__":`')
        reject_open_host(host, bool(token_file or options.get("tls_client_ca")) or insecure, TOKEN_FILE)
        given = dict(
            host=host,
            port=self.server_port if port is None else port,
            unix_socket=unix_socket,
            local_socket=local_socket,
            token_file=token_file,
            insecure=insecure,
            workers=workers,
            queue=queue,
            timeout=timeout,
            cache=cache,
            compression_level=compression_level,
        )
        overridable = {"model": models, "service_name": self.name, "service_version": self.version}
        chosen = {**given, **overridable, **options}
        command: list[str] = []
        if processes:
            from . import _worker

            chosen["workers"] = workers or 4
            command = _worker.command(self, option_texts(chosen))
            chosen["workers"] *= processes
        is_service = self._told_to_end is not None  # serve() is all that the program does
        server = _core.Server(
            list(self._registered_functions.values()), option_texts(chosen), processes, command, is_service
        )
        server.start(self._told_to_end)
        self._server = server
        return server.url

    @property
    def url(self) -> str:
        """The server's url. Raises RuntimeError if the provider does not serve."""
        if self._server is None:
            raise RuntimeError("the provider does not serve: call start() or serve()")
        return self._server.url

    @property
    def processes(self) -> list[WorkerProcess]:
        """The worker processes; empty if this process runs the functions."""
        return [] if self._server is None else [WorkerProcess(**fields) for fields in self._server.processes()]

    def stop(self, drain_time: float | None = None) -> bool:
        """Ends the server: blocks until the calls in flight have ended, at most `drain_time` seconds; None: the time
        that start() got, else 10. Returns False if one took longer: its function runs on, at most until the process
        ends. May be called more than once."""
        server, self._server = self._server, None
        return server is None or server.stop(drain_time)

    def serve(
        self,
        port: int | None = None,
        host: str = "127.0.0.1",
        *,
        drain_time: float = 10.0,
        ready_file: str = "",
        **options: Any,
    ) -> bool:
        """Serves until SIGTERM or SIGINT, then as stop(). Call it on the main thread. `ready_file` gets the URL once
        the server is ready. Other options: see start()."""
        with told_to_end() as told:
            self._told_to_end = told
            try:
                url = self.start(port, host, drain_time=drain_time, **options)
            except InterruptedError:  # before the worker processes were ready
                return True
            finally:
                self._told_to_end = None
            if ready_file:
                _write_whole(ready_file, url)
            print(f"shared_tensor: {len(self._registered_functions)} functions at {url}", flush=True)
            wait_until(told)
        return self.stop()

    def deploy(self, replicas: int = 1, **options: Any) -> Handle:
        """Serves the functions in so many actors of a Ray cluster, and returns a handle that calls them: see
        shared_tensor.ray.deploy()."""
        from .ray import deploy

        return deploy(self, replicas, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """For actors of Ray: the module is imported there; functions of the main program are sent."""
        from ._worker import place_of

        place = place_of(self)
        if place is not None and place[0] != "__main__":
            return _imported, place
        return _rebuilt, (self.name, self.version, self._registered_functions)

    def __enter__(self) -> SharedTensorProvider:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
