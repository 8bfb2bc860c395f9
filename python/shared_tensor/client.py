"""Calls functions of a shared-tensor-server."""

from __future__ import annotations

import contextlib
import json
import threading
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import _convert, _core, _inputs, _tracing
from .errors import InvalidParams, MethodNotFound, RpcError
from .handles import Batch, Convert, Stream, Task
from .records import Receipt, Retry
from .remote import RemoteFunction, Stub

T = TypeVar("T")
Framework = str | Callable[[_core.Tensor], Any] | None


@dataclass(frozen=True)
class _Options:
    timeout: float | None = 30.0
    framework: Framework = None
    receipt: bool = False
    transport: str = ""
    idempotent: bool = False
    idempotency_key: str = ""
    session: str = ""
    task_ttl: float | None = None
    task_deadline: float | None = None

    def of_call(self) -> dict[str, Any]:
        names = "timeout", "session", "transport", "idempotent", "idempotency_key", "task_ttl", "task_deadline"
        return {name: getattr(self, name) for name in names}


def _by_name(method: str, names: list[str], positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    if len(positional) > len(names):
        raise TypeError(f"{method}() takes {len(names)} arguments, but {len(positional) + len(named)} were given")
    for name in names[: len(positional)]:
        if name in named:
            raise TypeError(f"{method}() got multiple values for argument '{name}'")
    return {**dict(zip(names, positional, strict=False)), **named}


@dataclass
class _Shared:
    """What all clients of one connection pool share."""

    url: str
    pool_options: dict[str, Any]
    parameters: dict[str, list[str]] = field(default_factory=dict)  # replaced as a whole, never changed


class Client:
    """Calls functions of a server: `client.call("scale", x, factor=2)` or `client.scale(x, factor=2)`.

    `url`: "http://host:port", "https://host:port" or "unix:/path/of/socket"; None: SHARED_TENSOR_URL, else
    127.0.0.1 with port 2537 plus RANK. `token`: sent with each request; None: SHARED_TENSOR_TOKEN if `url` is None too.
    `timeout`: seconds for each call with all its tries; None: the function's own deadline, else the server's.
    `retry`: a Retry, the number of tries, or None for no repeats. `framework`: see options(). `connections`: at most
    so many at once; more calls wait for one. `connect_timeout`: seconds for one try to connect. `wait_for_server`:
    seconds in which the first call repeats failed tries to connect. `accept`: the transports for results, the
    preferred one first; shared memory is put before them where it is usable. `local_socket`: the server's socket for
    shared memory: a path, "auto" or "none". `devices`: whether tensors of GPUs cross without a copy: "auto", "cuda" or
    "none". `compression`: "zstd" for tensors to and from other hosts, with `compression_level` 1 (fast) to 9 (small).
    `authorities`: file with the authorities of an https server; "": the system's. `certificate`, `key`: files, for
    servers that ask for them. Raises ValueError for a malformed url.

    A client is a connection pool. Any thread may use it; `copy.copy(client)` and the clients that `options()` returns
    share the pool. After os.fork() the child's copy makes its own connections. A call releases the GIL while it waits.
    The first call connects, not the constructor.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float | None = 30.0,
        retry: Retry | int | None = Retry(),  # noqa: B008
        *,
        framework: Framework = None,
        connections: int = 8,
        connect_timeout: float = 5.0,
        wait_for_server: float = 0.0,
        accept: str = "body, base64, data",
        local_socket: str = "auto",
        devices: str = "auto",
        compression: str = "none",
        compression_level: int = 1,
        authorities: str = "",
        certificate: str = "",
        key: str = "",
    ) -> None:
        if retry is None:
            retry = Retry(tries=1)
        elif isinstance(retry, int):
            retry = Retry(tries=retry)
        pool_options: dict[str, Any] = {
            "url": url,
            "token": token,
            "connections": connections,
            "connect_timeout": connect_timeout,
            "wait_for_server": wait_for_server,
            "accept": accept,
            "local_socket": local_socket,
            "devices": devices,
            "compression": compression,
            "compression_level": compression_level,
            "authorities": authorities,
            "certificate": certificate,
            "key": key,
            "tries": retry.tries,
            "first_delay": retry.first_delay,
            "longest_delay": retry.longest_delay,
            "random_delays": retry.random,
        }
        core = _core.Client(**pool_options)
        self._set(core, _Options(timeout=timeout, framework=framework), _Shared(core.url(), pool_options))

    def _set(self, pool: _core.Client, options: _Options, shared: _Shared) -> None:
        self._pool = pool
        self._options = options
        self._shared = shared
        self._core = pool.with_options(**options.of_call())
        self._receipts = threading.local()

    def _convert(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Convert:
        if self._options.framework is None:
            return _convert.of_arguments(positional, named)
        return _convert.converter(self._options.framework)

    def _arguments(
        self, method: str, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """JSON-RPC takes arguments by position or by name. If there are both, all of them are named."""
        known = self._known_arguments(method, positional, named)
        if known is not None:
            return known
        methods = self.discover()["methods"]
        parameters = {entry["name"]: [parameter["name"] for parameter in entry["params"]] for entry in methods}
        self._shared.parameters = parameters
        if method not in parameters:
            text = "Method not found: nothing is shared by this name; rpc.discover lists what is"
            raise MethodNotFound(f"{method}: {text}", code=-32601, message="Method not found", data={"method": method})
        return (), _by_name(method, parameters[method], positional, named)

    def _known_arguments(
        self, method: str, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """As _arguments(), but returns None if the server must be asked for the names of the parameters."""
        if not (positional and named):
            return positional, named
        names = self._shared.parameters.get(method)
        if names is None:
            return None
        try:
            return (), _by_name(method, names, positional, named)
        except TypeError:  # the function may have other parameters now
            return None

    # ---- calls

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function and returns its result. Blocks until the answer is there; Ctrl-C cancels the call.

        Raises a child of RpcError for a failed call, and TypeError or ValueError for arguments that cannot be sent.
        Do not change tensors of arguments before the call has returned. Tensors of the result belong to the caller.
        """
        return self._call(method, *self._arguments(method, args, kwargs), self._convert(args, kwargs))

    def _call(self, method: str, positional: tuple[Any, ...], named: dict[str, Any], convert: Convert) -> Any:
        keep = self._keep_receipt if self._options.receipt else None
        try:
            if not _tracing.in_use():
                return self._core.call(method, positional, named, convert, keep)
            with self._in_span(method) as core:
                return core.call(method, positional, named, convert, keep)
        except InvalidParams:
            self._shared.parameters = {}  # the function may have other parameters now
            raise

    @contextlib.contextmanager
    def _traced(self, method: str) -> Iterator[_core.Client]:
        """The client for one request, which names the span of the request."""
        try:
            with self._in_span(method) if _tracing.in_use() else contextlib.nullcontext(self._core) as core:
                yield core
        except InvalidParams:
            self._shared.parameters = {}
            raise

    @contextlib.contextmanager
    def _in_span(self, method: str) -> Iterator[_core.Client]:
        with _tracing.client_span(method) as traceparent:
            yield self._core_in(traceparent)

    def _core_in(self, traceparent: str) -> _core.Client:
        if not traceparent:
            return self._core
        return self._pool.with_options(**self._options.of_call(), traceparent=traceparent)

    def _keep_receipt(self, fields: dict[str, Any]) -> None:
        self._receipts.last = Receipt(**fields)

    @property
    def last_receipt(self) -> Receipt | None:
        """The receipt of this thread's last call by this client, which must have the option receipt=True."""
        return getattr(self._receipts, "last", None)

    def notify(self, method: str, /, *args: Any, **kwargs: Any) -> None:
        """Calls a function without waiting for it: blocks until the server has accepted the call. Its result and its
        errors are dropped."""
        arguments = self._arguments(method, args, kwargs)
        with self._traced(method) as core:
            core.notify(method, *arguments)

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Task[Any]:
        """Starts the call as a task in the server. Blocks until the server has accepted it. The deadline of the client
        does not hold for the task: see `task_deadline` of options()."""
        arguments = self._arguments(method, args, kwargs)
        with self._traced(method) as core:
            return Task(core.submit(method, *arguments), self._convert(args, kwargs))

    def task(self, id: str) -> Task[Any]:
        """A handle of a task that was submitted elsewhere. Sends nothing; its methods raise UnknownOrExpired for
        an unknown id."""
        return Task(self._core.task(id), _convert.converter(self._options.framework))

    def stream(self, method: str, /, *args: Any, **kwargs: Any) -> Stream:
        """Calls a function with streams. Blocks until the server is about to run it. `timeout` is the deadline of the
        whole call; the call is not repeated once it was sent. Raises what call() raises.

        An argument that is an iterator is a stream that the function reads: `client.stream("detect", windows=windows)`.
        It may be given by position if there is one. A thread takes its items and sends them, until the function wants
        no more. If the iterator raises, the call is cancelled, and reading or result() raises that exception. Without
        such arguments, use Stream.writer().
        """
        values, named, inputs = _inputs.split(args, kwargs)
        if not all(isinstance(items, Iterator) for items in inputs.values()):
            raise TypeError("an asynchronous iterator as an argument: use AsyncClient, or pass an iterator")
        arguments = self._arguments(method, values, named)
        with self._traced(method) as core:
            return Stream(core.stream(method, *arguments), self._convert(values, named), inputs)

    def batch(self) -> Batch:
        """Collects several calls that are sent as one request. Sends nothing before the end of `with`."""
        return Batch(self)

    def __getattr__(self, name: str) -> RemoteFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteFunction(self, name)

    def function(self, like: Callable[..., T], name: str | None = None) -> Callable[..., T]:
        """Returns a function of the server with the signature and the type hints of `like`, whose body is not run.
        Arguments that do not fit the signature are a TypeError before anything is sent. The result has the type that
        the hint says: a dataclass, an enum, bytes, a tensor; ResultMismatch is raised if it does not fit."""
        return typing.cast(Callable[..., T], RemoteFunction(self, name or like.__name__, like))

    def stub(self, protocol: type[T]) -> T:
        """Returns an object with the functions of a Protocol (or any class): as function() for each of them. Sends
        nothing."""
        return typing.cast(T, Stub(self, protocol))

    # ---- clients with other options

    def options(
        self,
        *,
        timeout: float | None = ...,  # type: ignore[assignment]
        framework: Framework = ...,  # type: ignore[assignment]
        receipt: bool = ...,  # type: ignore[assignment]
        transport: str = ...,  # type: ignore[assignment]
        idempotent: bool = ...,  # type: ignore[assignment]
        idempotency_key: str = ...,  # type: ignore[assignment]
        task_ttl: float | None = ...,  # type: ignore[assignment]
        task_deadline: float | None = ...,  # type: ignore[assignment]
    ) -> Client:
        """Returns a client on the same pool with other options for its calls. Options that are not given stay.

        timeout: seconds, or None. framework: of the tensors in results: "torch", "numpy", "jax", "none" (a Tensor) or a
        function of a Tensor; None: as the arguments, or without any torch if it is imported, else NumPy. receipt: keep
        the receipt of each call in `last_receipt`. transport: the only transports for tensors ("shm", "cuda_ipc, shm");
        if none is possible, the call fails with TransportNotPossible. idempotent: the call may run twice.
        idempotency_key: calls with the same key run once. task_ttl, task_deadline: for submit(), in seconds.
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not ...}
        return self._with(_Options(**{**self._options.__dict__, **given}))

    def _with(self, options: _Options, pool: _core.Client | None = None) -> Client:
        made = object.__new__(Client)
        made._set(pool or self._pool, options, self._shared)
        return made

    def new_session(self) -> Client:
        """Returns a client with a new session in the server: a stateful model has its own state in each session. The
        session ends with the last copy of the client, or after 10 minutes without a call."""
        made = object.__new__(Client)
        made._set(self._core.new_session(), self._options, self._shared)
        return made

    def __copy__(self) -> Client:
        return self._with(self._options)

    # ---- the server

    @property
    def url(self) -> str:
        """The server's url."""
        return self._shared.url

    def info(self) -> dict[str, Any]:
        """The server's name, versions and limits: the answer of server.info (docs/protocol.md)."""
        return typing.cast("dict[str, Any]", json.loads(self._core.info()))

    def discover(self) -> dict[str, Any]:
        """The server's functions, their parameters and types, as an OpenRPC document."""
        return typing.cast("dict[str, Any]", json.loads(self._core.discover()))

    def ping(self) -> float:
        """Seconds of one small round trip."""
        return self._core.ping()

    def transports(self) -> dict[str, str | None]:
        """The transports of tensors between this process and the server: None if usable, else the reason."""
        return {name: None if usable else reason for name, usable, reason in self._core.transports()}

    def empty(self, shape: Iterable[int], dtype: str | Any = "float32") -> Any:
        """Makes an uninitialised tensor in memory that this process shares with the server. As an argument it is passed
        without a copy, any number of times. It has the client's framework, or by default torch's if torch is imported,
        else NumPy's. Raises ValueError for an unknown dtype. Without shared memory it lies in ordinary memory."""
        tensor = self._core.empty_in_shared_memory([int(size) for size in shape], _convert.dtype_name(dtype))
        convert = _convert.converter(self._options.framework)
        return tensor if convert is None else convert(tensor)

    def close(self) -> None:
        """Ends the calls in flight of all copies: they raise TransportFailure, as do later calls."""
        self._pool.shutdown()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shared_tensor.Client {self.url}>"

    def _repr_html_(self) -> str:
        """For notebooks: the functions of the server. Waits at most 2 s for them."""
        from ._show import signature, table

        title = f"shared_tensor.Client {self.url}"
        try:
            methods = self.options(timeout=2).discover()["methods"]
        except RpcError as error:
            return table(title, [("not reachable", error)])
        rows = ((signature(method), method.get("summary") or method.get("description", "")) for method in methods)
        return table(title, rows)

    def __reduce__(self) -> Any:
        raise TypeError("a Client cannot be pickled: make a new one with the same url in the other process")


# At the end, because it needs Client: the client of shared-tensor 0.1 was imported from here.
from ._first.client import SharedTensorClient as SharedTensorClient  # noqa: E402
from ._first.client import execute_remote_function as execute_remote_function  # noqa: E402
