"""The exceptions of calls.

All are children of `SharedTensorError`. `RpcError` and its children come from a call: `code` is the JSON-RPC code (0 if
there was no answer), `message` the server's text, `data` the data member of the error, decoded from JSON.
`SharedTensorServerError` is the parent of what a server answers, `SharedTensorClientError` of calls without an answer.
"""

from __future__ import annotations

import json
from typing import Any


class SharedTensorError(Exception):
    """The base of all exceptions of this package."""


class SharedTensorProviderError(SharedTensorError):
    """A call of a shared function failed. Each RpcError is one: programs for shared-tensor 0.1 catch it."""


class RpcError(SharedTensorProviderError):
    """A failed call: the server's error, or the reason why there is no answer. Made by the package; it can be
    pickled."""

    code: int
    message: str
    data: Any

    def __init__(self, text: str, *, code: int = 0, message: str | None = None, data: Any = None) -> None:
        super().__init__(text)
        self.code = code
        self.message = text if message is None else message
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args[0], dict(self.__dict__))


class SharedTensorServerError(RpcError):
    """The server answered with an error."""


class SharedTensorClientError(RpcError):
    """The client got no answer that it could use."""


class MethodNotFound(SharedTensorServerError):
    """The server has no function of this name (-32601)."""


class InvalidParams(SharedTensorServerError):
    """The arguments do not fit the function (-32602). `data`: parameter, expected, got."""


class FunctionFailed(SharedTensorServerError):
    """The function raised an exception (-32000). `data`: its type and message. The traceback of a Python function is a
    note of the exception, so it is printed with it."""

    @property
    def type_name(self) -> str:
        """The name of the exception's type in the server."""
        return str(self.data.get("type", "")) if isinstance(self.data, dict) else ""


class WorkerDied(FunctionFailed):
    """The worker process that ran the function has ended (-32000); the message has the signal or the exit status. It is
    started again, and other calls are not affected."""


class ServerBusy(SharedTensorServerError):
    """The server has too much work (-32001), and the client's tries are used up. The call did not run. `data`:
    retry_after_ms."""


class DeadlineExceeded(SharedTensorServerError, SharedTensorClientError, TimeoutError):
    """The call's deadline is over (-32002): the server says so, or the client has waited so long. The function may have
    run."""


class Cancelled(SharedTensorServerError):
    """The call was cancelled (-32004)."""

    may_have_run: bool = True
    """False if the function was not started."""


class UnknownOrExpired(SharedTensorServerError, LookupError):
    """The server does not know the task, lease, session or name, or has dropped it (-32005)."""


class TensorExpired(UnknownOrExpired):
    """The result's memory is gone: its lease ended, or the server ended. Repeat the call."""


class TransportNotPossible(SharedTensorServerError):
    """No wanted transport of tensors is possible (-32006). `data`: a reason for each."""


class NotAuthorised(SharedTensorServerError, PermissionError):
    """The caller may not call this method (-32007)."""


class ServerOutOfMemory(SharedTensorServerError, MemoryError):
    """The server has no memory for the call (-32008)."""


class ShuttingDown(SharedTensorServerError):
    """The server is ending (-32009)."""

    may_have_run: bool = False
    """True if the server's drain time ended while the call ran. False if the call was rejected before it ran."""


class InputFailed(SharedTensorServerError):
    """An item of a batch failed, and this item needs its result (-32010). `data`: item."""


class OutcomeUnknown(SharedTensorServerError):
    """The server ended while the call with this idempotency key ran: it may have run or not (-32011)."""


class TransportFailure(SharedTensorClientError, ConnectionError):
    """No answer came: the connection was refused or broke."""

    may_have_run: bool = True
    """False if nothing was sent: then the call had no effect."""


class ProtocolFailure(TransportFailure):
    """The peer's answer does not follow the protocol."""


class ResultMismatch(SharedTensorClientError):
    """The call succeeded, but its result does not fit the type asked for."""


_BY_CODE: dict[int, type[RpcError]] = {
    -32601: MethodNotFound,
    -32602: InvalidParams,
    -32000: FunctionFailed,
    -32001: ServerBusy,
    -32002: DeadlineExceeded,
    -32004: Cancelled,
    -32005: UnknownOrExpired,
    -32006: TransportNotPossible,
    -32007: NotAuthorised,
    -32008: ServerOutOfMemory,
    -32009: ShuttingDown,
    -32010: InputFailed,
    -32011: OutcomeUnknown,
}


def _again(kind: type[RpcError], text: str, state: dict[str, Any]) -> RpcError:
    error = kind(text)
    error.__dict__.update(state)
    return error


def _make(kind: str, code: int, message: str, data: str, text: str, may_have_run: bool | None) -> RpcError:
    """Makes the exception for an error of the C++ library."""
    other = SharedTensorServerError if code else SharedTensorClientError
    chosen: type[RpcError] = globals()[kind] if kind else _BY_CODE.get(code, other)
    decoded = json.loads(data) if data else None
    if chosen is FunctionFailed and isinstance(decoded, dict) and decoded.get("type") == "WorkerDied":
        chosen = WorkerDied
    error = chosen(text, code=code, message=message, data=decoded)
    if isinstance(error, (Cancelled, ShuttingDown, TransportFailure)) and may_have_run is not None:
        error.may_have_run = may_have_run
    if isinstance(error, FunctionFailed) and isinstance(error.data, dict) and "traceback" in error.data:
        # An exception without add_note() (Python 3.10) keeps the note all the same, and notebooks show it.
        error.__notes__ = ["In the server:\n" + error.data["traceback"].rstrip()]
    return error


class BadArgument(SharedTensorError, TypeError):
    """In a server: an argument does not fit a function's parameter. The caller gets InvalidParams. Made by the package.
    `parameter`, `expected` and `got` are texts."""

    def __init__(self, parameter: str, expected: str, got: str) -> None:
        super().__init__(f"{parameter}: expected {expected}, got {got}")
        self.parameter = parameter
        self.expected = expected
        self.got = got


class BadItem(BadArgument):
    """In a server: an item of a stream does not have the type that the function's type hint says."""


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback_of(error: BaseException) -> str:
    """The traceback of a function's own code, without the frames of this package. Of a long one the end is kept."""
    import traceback

    trace = error.__traceback__
    package = __name__.partition(".")[0]
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).encode(errors="replace")
    most = 4000  # bytes; the server cuts texts of 4096
    return text[-most:].decode(errors="ignore")
