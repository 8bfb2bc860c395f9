"""What clients are told of calls and tasks, and when they repeat a call."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Retry:
    """When a client repeats a call that is safe to repeat: nothing was sent, the server rejected it before it ran, or
    the call is `idempotent`. The delays are random, up to `first_delay`, then twice as long each time."""

    tries: int = 4
    """How often a call is sent at most; 1: it is never repeated."""
    first_delay: float = 0.05
    longest_delay: float = 5.0
    """In seconds, as `first_delay`."""
    random: bool = True
    """False: each delay is as long as it may be. Clients that failed together then also repeat together."""


@dataclass(frozen=True)
class Receipt:
    """How a call went. Times are in seconds."""

    request_id: str
    """As in the server's log: the header X-Request-Id of the request."""
    tries: int
    """How often the request was sent: 1 if it was not repeated."""
    transports: list[tuple[str, int, int]]
    """For each transport of tensors: its name, the number of tensors, and the bytes that the server copied for them."""
    bytes_copied: int
    """Bytes that server and client copied for tensors. Bytes that cross a network are not counted."""
    queue: float | None
    """How long the call waited for a worker. None if no function ran."""
    run: float | None
    """How long the function ran. None if no function ran."""
    total: float
    """From the call to its return, in the client."""

    @property
    def retries(self) -> int:
        """tries - 1."""
        return max(0, self.tries - 1)

    def _repr_html_(self) -> str:
        from ._show import table

        return table("Receipt", ((field.name, getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True)
class TaskStatus:
    """A report about a task."""

    id: str
    method: str
    state: str
    """pending, running, completed, failed or cancelled."""
    fraction: float | None = None
    """From 0 to 1; None before the function's first report."""
    message: str = ""
    """The function's last text for people."""
    created_at: str = ""
    updated_at: str = ""
    """ISO 8601, in UTC, as `created_at`."""
    error: str = ""
    """JSON text of the error of a failed task."""

    @property
    def ended(self) -> bool:
        """Whether the state is completed, failed or cancelled."""
        return self.state in ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class WorkerProcess:
    """The state of one worker process of a provider that serves with `processes`."""

    pid: int
    """0 while none runs."""
    ready: bool
    """Takes calls."""
    calls: int
    """In progress."""
    restarts: int
    """How often it was started again."""
    last_end: str
    """Why the last one ended; empty: none ended."""
