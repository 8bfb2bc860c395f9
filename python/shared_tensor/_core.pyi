"""The C++ library. Use the package shared_tensor instead, but for Tensor, Object, NamedReference and Context."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from typing_extensions import CapsuleType

version: str

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

class Tensor:
    """A tensor without a framework: a view of memory that it keeps. Libraries with DLPack take it without a copy:
    `numpy.from_dlpack(tensor)`. Any thread may use it; it locks nothing."""

    @staticmethod
    def from_dlpack(tensor: Any) -> Tensor:
        """Makes a view of another framework's tensor, without a copy; it keeps that tensor. Raises
        AttributeError if `tensor` has no `__dlpack__`, and what its `__dlpack__` raises."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension; () for a tensor without dimensions."""
    @property
    def strides(self) -> tuple[int, ...]:
        """In elements, not bytes."""
    @property
    def dtype(self) -> str:
        """The dtype's name in torch: 'float32'."""
    @property
    def device(self) -> str:
        """'cpu' or 'cuda:0'."""
    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps between them."""
    def view(self, dtype: str) -> Tensor:
        """Returns a view of the same memory with elements of another dtype of the same size. Raises ValueError for
        another size."""
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Object:
    """A handle of an object that stays in the server. Pass it to other functions of the server. The
    object ends after its last handle (docs/lifecycle.md)."""

    @staticmethod
    def keep(type: str, value: Any) -> Object:
        """In a server: makes a result that stays here, so that the caller gets its handle. `type`: its name for
        callers, "module.Class". Functions do this by themselves for results that are no values."""
    @property
    def type(self) -> str:
        """The name of the object's class in the server: "module.Class"."""
    @property
    def id(self) -> str:
        """The server's name for the object."""

class NamedReference:
    """An argument that names a tensor in the server; the tensor itself is not sent. Made by ref()."""

    @property
    def name(self) -> str:
        """'name' or 'set/member'."""

def ref(name: str) -> NamedReference:
    """Passes a named tensor of the server ('name' or 'set/member') as an argument. The function gets the version that
    is current when it is called; UnknownOrExpired is raised by the call if there is none."""

class Client:
    def __init__(self, **options: Any) -> None: ...
    def with_options(self, **options: Any) -> Client: ...
    def call(
        self, method: str, positional: Args, named: Kwargs, convert: Any, keep: Callable[[Kwargs], None] | None
    ) -> Any: ...
    def notify(self, method: str, positional: Args, named: Kwargs) -> None: ...
    def submit(self, method: str, positional: Args, named: Kwargs) -> Task: ...
    def task(self, id: str) -> Task: ...
    def stream(self, method: str, positional: Args, named: Kwargs) -> StreamCall: ...
    def batch(self) -> Batch: ...
    def new_session(self) -> Client: ...
    def session(self) -> str: ...
    def info(self) -> str: ...
    def discover(self) -> str: ...
    def ping(self) -> float: ...
    def transports(self) -> list[tuple[str, bool, str]]: ...
    def empty_in_shared_memory(self, shape: Sequence[int], dtype: str) -> Tensor: ...
    def url(self) -> str: ...
    def shutdown(self) -> None: ...

class Task:
    def id(self) -> str: ...
    def status(self) -> Kwargs: ...
    def wait_for(self, seconds: float) -> bool: ...
    def cancel(self) -> Kwargs: ...
    def on_progress(self, report: Callable[[Kwargs], None]) -> None: ...
    def get(self, convert: Any) -> Any: ...

class BatchItem:
    def get(self, convert: Any) -> Any: ...

class Batch:
    def add(self, method: str, positional: Args, named: Kwargs) -> BatchItem: ...
    def notify(self, method: str, positional: Args, named: Kwargs) -> None: ...
    def size(self) -> int: ...
    def send(self) -> Kwargs: ...

class Reader:
    def next(self, convert: Any) -> tuple[()] | tuple[Any]: ...

class Writer:
    def write(self, item: Any) -> bool: ...
    def end(self) -> None: ...

class StreamCall:
    def reader(self, name: str) -> Reader: ...
    def writer(self, name: str) -> Writer: ...
    def result(self, convert: Any) -> Any: ...
    def cancel(self) -> None: ...

class Stop:
    def __init__(self) -> None: ...
    def request(self) -> None: ...

class AsyncClient:
    def __init__(self, threads: int, **options: Any) -> None: ...
    def call(
        self,
        method: str,
        positional: Args,
        named: Kwargs,
        done: Callable[[Any, BaseException | None, Kwargs], None],
        **options: Any,
    ) -> Stop: ...
    def close(self) -> None: ...

class NamedTensor:
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def is_set(self) -> bool: ...
    def tensor(self) -> Tensor: ...
    def member(self, name: str) -> Tensor: ...
    def names(self) -> list[str]: ...
    def save(self, path: str) -> None: ...

class NamedTensors:
    def __init__(self, client: Client) -> None: ...
    def publish(
        self,
        name: str,
        tensors: Any,
        metadata: dict[str, str],
        if_version: int | None,
        base: int | None,
        version: int | None,
        remote: bool,
        progress: Callable[[int, int], Any] | None,
    ) -> tuple[str, int, int, int, str]: ...
    def empty_set(self, forms: list[tuple[str, str, list[int]]]) -> dict[str, Tensor]: ...
    def publish_file(
        self,
        name: str,
        path: str,
        metadata: dict[str, str],
        if_version: int | None,
        base: int | None,
        version: int | None,
        remote: bool,
        progress: Callable[[int, int], Any] | None,
    ) -> tuple[str, int, int, int, str]: ...
    def get(
        self,
        name: str,
        version: int | None,
        members: list[str] | None,
        previous: NamedTensor | None,
        swarm: bool,
        shared_with: Client | None,
        remote: bool,
        progress: Callable[[int, int], Any] | None,
    ) -> NamedTensor: ...
    def list(self, prefix: str) -> list[Kwargs]: ...
    def remove(self, name: str) -> bool: ...
    def watch(self, name: str, after: int, seconds: float) -> int | None: ...

def put_sharded(
    client: Client,
    name: str,
    tensors: dict[str, tuple[Any, list[int], list[int | None]]],
    mesh: list[int],
    at: list[int],
    generation: str,
) -> tuple[str, int, int, int, str]: ...
def get_sharded(
    publishers: list[tuple[Client, str]],
    wanted: dict[str, list[int | None]],
    mesh: list[int],
    at: list[int],
    generation: str | None,
    patience: float,
) -> tuple[dict[str, Tensor], str, int]: ...

class Context:
    """The context of a running call: a shared function gets it by a parameter of this type. Any thread may use it while
    the function runs, and nobody after that. Only sleep() blocks."""

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports the progress to waiting callers: a fraction from 0 to 1, and a text for people."""
    @property
    def cancelled(self) -> bool:
        """True if the result is no longer wanted. Return soon."""
    def check_cancelled(self) -> None:
        """Raises Cancelled if the result is no longer wanted: the call was cancelled, its deadline is over, or the
        caller is gone."""
    def sleep(self, seconds: float) -> bool:
        """Sleeps until the time is over or the call is cancelled. Returns False if it is cancelled."""
    @property
    def remaining(self) -> float | None:
        """Seconds until the caller stops waiting; None without a deadline."""
    @property
    def principal(self) -> str:
        """The caller: 'uid:1000', 'token:NAME'."""
    @property
    def session(self) -> str:
        """The caller's session; empty without one."""
    @property
    def traceparent(self) -> str:
        """The call's span, else its caller's, in the form of W3C Trace Context; empty without both."""
    def empty(self, shape: Iterable[int], dtype: Any = "float32", framework: Any = None) -> Any:
        """Makes an uninitialised tensor in memory that is shared with callers. The function can return it any number of
        times without a copy. What it writes to it later, holders of the result see. `framework`: see
        Client.options(). Without shared memory the tensor lies in ordinary memory."""
    def log(self, text: str, level: str = "info") -> None:
        """Writes a line with the function's name to the server's log. `level`: "debug", "warn" or "error";
        else "info"."""
    def _reader(self, parameter: int) -> ItemReader: ...
    def _writer(self, parameter: int) -> ItemWriter: ...

class ItemReader:
    def next(self) -> tuple[()] | tuple[Any]: ...

class ItemWriter:
    def write(self, item: Any) -> bool: ...

class OptionInfo:
    @property
    def name(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def is_list(self) -> bool: ...
    @property
    def common(self) -> bool: ...
    @property
    def default_value(self) -> str: ...

def list_server_options() -> list[OptionInfo]: ...
def options_in_environment() -> list[tuple[str, str]]: ...
def check_options(options: list[tuple[str, str]]) -> None: ...

class Server:
    def __init__(
        self,
        definitions: list[Any],
        options: list[tuple[str, str]],
        processes: int = 0,
        command: list[str] = [],
        is_service: bool = False,
    ) -> None: ...
    def start(self, told_to_end: Callable[[], bool] | None = None) -> None: ...
    def stop(self, drain_time: float | None) -> bool: ...
    def processes(self) -> list[dict[str, Any]]: ...
    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...

def is_worker_process() -> bool: ...
def serve_as_worker(definitions: list[Any], options: list[tuple[str, str]]) -> None: ...

class Node:
    def __init__(self, **options: Any) -> None: ...
    def url(self) -> str: ...
    def publish(
        self, name: str, value: Any, metadata: dict[str, str], if_version: int | None, base: int | None, stop: Stop
    ) -> tuple[str, int, int, int, str]: ...
    def pull(
        self, url: str, name: str, version: int | None, first_row: int | None, last_row: int | None, stop: Stop
    ) -> NamedTensor: ...
    def push(self, url: str, name: str, tensor: Tensor, stop: Stop) -> None: ...
    def receive(self, seconds: float) -> tuple[str, Tensor] | None: ...
    def shutdown(self) -> None: ...
    def statistics(self) -> dict[str, int]: ...
    def peers(self) -> dict[str, dict[str, int]]: ...

def tensor_of_bytes(data: Any, shape: Sequence[int], dtype: str) -> Tensor: ...
def bytes_of_tensor(tensor: Tensor) -> bytes: ...
