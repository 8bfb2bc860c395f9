"""Calls of a deployment: the nearest replica first, and others if it fails."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from ..client import Client
from ..errors import DeadlineExceeded, RpcError, ServerBusy, ShuttingDown, TransportFailure
from ..handles import Stream, Task
from ..records import Receipt
from ..remote import RemoteFunction, Signature
from ._directory import HEARTBEAT, Place, Report
from ._serving import cluster, get

if TYPE_CHECKING:
    from ._deployment import Recipe

T = TypeVar("T")


@dataclass(frozen=True)
class Replica:
    """A process that serves a deployment."""

    id: str
    """Of this process; another after a restart."""
    node: str
    """Ray's id of its node."""
    url: str
    near: bool
    """On the node of this process: tensors cross through shared memory."""


class _Replicas:
    """The replicas of a deployment as this process knows them, with a client for each. Any thread may use it."""

    def __init__(self, deployment: str) -> None:
        self.deployment = deployment
        self.cluster = cluster()
        self.repeatable: frozenset[str] = frozenset()  # functions that may run twice for one call
        self.actors: dict[int, Any] = {}  # by number: keeps the replicas that deploy() made here
        self.recipe: Recipe | None = None  # of these
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[Place, Client]] = {}
        self._asked_at = -1e9
        self._question: Any = None
        self._turn = itertools.count()

    def refresh(self, wait: float) -> None:
        """Asks the directory if the last answer is old. Blocks at most `wait` seconds for the answer."""
        with self._lock:
            if self._question is None and (wait or time.monotonic() - self._asked_at > HEARTBEAT):
                self._question = self.cluster.directory.replicas.remote(self.deployment)
                self._asked_at = time.monotonic()
            question = self._question
        if question is None:
            return
        ready, _ = ray.wait([question], timeout=wait)
        if not ready:
            return
        try:
            self._take(get(question))
        except ray.exceptions.RayError:
            pass  # the directory is being started again: the known replicas stay
        finally:
            with self._lock:
                self._question = None

    def _take(self, reports: list[Report]) -> None:
        with self._lock:
            known = self._clients
            self._clients = {
                place.id: known.get(place.id) or (place, self.cluster.client(place, timeout=None, retry=None))
                for place in (report.place for report in reports)
            }
            if reports:
                self.repeatable = reports[0].repeatable

    def ordered(self) -> list[tuple[Place, Client]]:
        """The replicas of this node in turn, then the others."""
        with self._lock:
            all_of_them = list(self._clients.values())
        near = [one for one in all_of_them if one[0].node == self.cluster.node]
        far = [one for one in all_of_them if one[0].node != self.cluster.node]
        return [*_turned(near, next(self._turn)), *_turned(far, random.randrange(len(far) or 1))]

    def failed(self, place: Place) -> None:
        """Leaves out a replica that could not be reached, until the directory says that it lives."""
        with self._lock:
            self._clients.pop(place.id, None)
        self.cluster.directory.leave.remote(place.id)


def _turned(places: list[T], by: int) -> list[T]:
    first = by % len(places) if places else 0
    return places[first:] + places[:first]


class Handle:
    """Calls the functions of a deployment: `handle.embed(x)` or `handle.call("embed", x)`. Any thread may use it, and
    tasks and actors of Ray may get it as an argument.

    A call goes to a replica on this node, the next one each time; without one, to a replica on another node. If a
    replica has too much work, is ending or cannot be reached, another takes the call. If the connection breaks after
    the call was sent, or the replica ends the call after the function has begun, the call goes on with another replica
    only if the function was shared with `idempotent=True` or the handle has the option `idempotent`; else
    TransportFailure or ShuttingDown is raised, whose `may_have_run` is True. While there is no replica, calls wait for
    one. All tries together take at most `timeout` seconds, 30 by default.
    """

    def __init__(
        self, deployment: str, replicas: _Replicas | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self._deployment = deployment
        self._replicas = replicas or _Replicas(deployment)
        self._options = {"timeout": 30.0, **(options or {})}
        self._clients: dict[str, Client] = {}  # with the options, for each replica
        self._receipts = threading.local()

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self._deployment

    @property
    def url(self) -> str:
        """Shows the deployment in texts."""
        return f"ray:{self._deployment}"

    def options(self, **options: Any) -> Handle:
        """Returns a handle with other options for its calls: those of Client.options()."""
        return Handle(self._deployment, self._replicas, {**self._options, **options})

    def replicas(self) -> list[Replica]:
        """The replicas that are alive, those of this node first. Asks the directory."""
        self._replicas.refresh(wait=HEARTBEAT)
        own = self._replicas.cluster.node
        return [Replica(place.id, place.node, place.url, place.node == own) for place, _ in self._replicas.ordered()]

    # ---- calls

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function and returns its result. Blocks. Raises what Client.call() raises."""
        return self._run(method, lambda client: client.call(method, *args, **kwargs))

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Task[Any]:
        """Starts a task: see Client.submit(). It ends with the replica that runs it."""
        return self._run(method, lambda client: client.submit(method, *args, **kwargs))

    def stream(self, method: str, /, *args: Any, **kwargs: Any) -> Stream:
        """Calls a function with streams: see Client.stream(). Once it runs, it does not change the replica."""
        return self._run(method, lambda client: client.stream(method, *args, **kwargs))

    def function(self, like: Callable[..., T], name: str | None = None) -> Callable[..., T]:
        """Returns a function with the signature and type hints of `like`: see Client.function()."""
        method, signature = name or like.__name__, Signature(like)

        def call(*args: Any, **kwargs: Any) -> T:
            made: T = self._run(method, lambda client: signature.call(client, method, args, kwargs))
            return made

        return call

    def __getattr__(self, name: str) -> RemoteFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteFunction(self, name)  # type: ignore[arg-type]  # it uses only call() and url

    @property
    def last_receipt(self) -> Receipt | None:
        """The receipt of this thread's last call by this handle, which must have the option receipt=True."""
        return getattr(self._receipts, "last", None)

    def _run(self, method: str, work: Callable[[Client], T]) -> T:
        self._replicas.refresh(wait=0)
        timeout = self._options["timeout"]
        deadline = None if timeout is None else time.monotonic() + timeout
        last: RpcError | None = None
        for delay in itertools.chain((0, 0.02, 0.05, 0.1, 0.2), itertools.repeat(0.5)):
            for place, client in self._replicas.ordered():
                try:
                    return self._run_on(place, client, deadline, work)
                except ServerBusy as error:
                    last = error
                except (ShuttingDown, TransportFailure) as error:
                    last = error
                    if isinstance(error, TransportFailure):
                        self._replicas.failed(place)
                    is_repeatable = self._options.get("idempotent") or method in self._replicas.repeatable
                    if error.may_have_run and not is_repeatable:
                        raise
            if deadline is not None and time.monotonic() + delay > deadline:
                break
            time.sleep(delay)
            left = HEARTBEAT if deadline is None else max(deadline - time.monotonic(), 0)
            self._replicas.refresh(wait=min(HEARTBEAT, left))
        raise last or DeadlineExceeded(f"{self._deployment} has no replica that could be reached in {timeout:g} s")

    def _run_on(self, place: Place, pooled: Client, deadline: float | None, work: Callable[[Client], T]) -> T:
        client = self._clients.get(place.id)
        if client is None:
            if len(self._clients) > 1000:  # replicas that were started again have other ids
                self._clients.clear()
            client = self._clients[place.id] = pooled.options(**self._options)
        if deadline is not None and (left := deadline - time.monotonic()) < self._options["timeout"] - 0.01:
            client = pooled.options(**{**self._options, "timeout": max(left, 0.001)})  # not the first try
        made = work(client)
        if client.last_receipt is not None:
            self._receipts.last = client.last_receipt
        return made

    def __reduce__(self) -> Any:
        return handle, (self._deployment, self._options)

    def __repr__(self) -> str:
        return f"<shared_tensor.ray.Handle {self._deployment}>"


def handle(deployment: str, options: dict[str, Any] | None = None) -> Handle:
    """The handle of a deployment, in any process of the cluster. Its replicas may start later. `options`: of
    Client.options()."""
    return Handle(deployment, options=options)
