"""Where the servers of a Ray cluster are, and which node has which version of a name."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util import list_named_actors

from ..errors import UnknownOrExpired

NAMESPACE = "shared_tensor"
HEARTBEAT = 2.0
"""Seconds between two reports of a server."""
_EXPIRY = 5 * HEARTBEAT
_CLAIM = 600.0
"""Seconds for which a publication with `if_version` keeps others from publishing after the same version, if its node
does not say that it has ended."""


@dataclass(frozen=True)
class Place:
    """Where a server is."""

    id: str
    """Of its process; another after a restart."""
    node: str
    """Ray's id of the node."""
    url: str
    """For other nodes."""
    socket: str
    """The path of its Unix socket, for processes of its node."""


@dataclass
class Report:
    """What a server says of itself every HEARTBEAT seconds, and after a change."""

    place: Place
    deployment: str = ""
    """"": the server of a node."""
    repeatable: frozenset[str] = frozenset()
    """Functions that may run twice for one call."""
    held: dict[str, int] = field(default_factory=dict)
    """Version of each name on a node; 0: the node waits for the first version."""
    number: int = 0
    """Of this report: Ray may deliver two of a server in the other order."""


class Directory:
    """An asyncio actor. It knows only what servers report, and they report it again: so it needs no disk, and Ray may
    start it again on any node. It cannot know the versions that an earlier directory gave away and that no node has:
    so the versions of a directory that was started again begin at the seconds since 1970."""

    def __init__(self, token: str, again: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """again: Ray started it again; None: asks Ray."""
        self._token = token
        again = _was_started_again() if again is None else again
        self._first = int(time.time()) if again else 1
        self._clock = clock
        self._reports: dict[str, tuple[float, Report]] = {}
        self._highest: dict[str, int] = {}  # of each name; also of versions that are lost
        self._claims: dict[str, tuple[int, float, str]] = {}  # versions reserved with if_version, when, and by whom
        self._released: dict[tuple[str, str], int] = {}  # versions that servers may drop, and will no longer report
        self._removed: dict[str, int] = {}  # the newest version when the name was removed
        self._changed = asyncio.Event()
        self._complete_at = clock() + (1.5 * HEARTBEAT if again else 0)

    async def token(self) -> str:
        return self._token

    async def _complete(self) -> None:
        """Waits until each server has reported, after a restart."""
        await asyncio.sleep(self._complete_at - self._clock())

    def _living(self) -> list[Report]:
        now = self._clock()
        self._reports = {key: entry for key, entry in self._reports.items() if now - entry[0] < _EXPIRY}
        return [report for _, report in self._reports.values()]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _newest(self, name: str) -> tuple[int, list[Place]]:
        """The newest version that a living node has, and these nodes; 0 if there is none."""
        having = [(report.held[name], report.place) for report in self._living() if report.held.get(name)]
        version = max((version for version, _ in having), default=0)
        if version <= self._removed.get(name, 0):
            return 0, []
        return version, [place for held, place in having if held == version]

    def _answer(self, id: str) -> dict[str, int]:
        return {name: self._newest(name)[0] for name in self._reports[id][1].held} if id in self._reports else {}

    async def report(self, report: Report, known: dict[str, int] | None) -> dict[str, int]:
        """The newest versions of the names that the server has; 0: there is none. With `known`, the answer before:
        returns once it has changed, or after HEARTBEAT seconds."""
        self._note(report)
        end = self._clock() + HEARTBEAT
        while (answer := self._answer(report.place.id)) == known and (left := end - self._clock()) > 0:
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), left)
            except asyncio.TimeoutError:  # not the builtin one in Python 3.10
                break
        return answer

    def _note(self, report: Report) -> None:
        place = report.place
        _, before = self._reports.get(place.id, (0.0, None))
        if before is not None and before.number > report.number:
            return
        if before is None:  # it may have been started again
            for other in [entry.place for _, entry in self._reports.values()]:
                if (other.node, other.socket) == (place.node, place.socket):
                    del self._reports[other.id]
        for key, version in [entry for entry in self._released.items() if entry[0][0] == place.id]:
            if report.held.get(key[1]) == version:
                del report.held[key[1]]
            else:
                del self._released[key]
        self._reports[place.id] = (self._clock(), report)
        for name, version in report.held.items():
            self._highest[name] = max(self._highest.get(name, 0), version)
            if name in self._claims and version >= self._claims[name][0]:
                del self._claims[name]
        if before is None or before.held != report.held:
            self._tell()

    async def leave(self, id: str) -> None:
        """Forgets a server: it has ended, or could not be reached. A living one reports again."""
        if self._reports.pop(id, None) is not None:
            self._tell()

    async def replicas(self, deployment: str) -> list[Report]:
        """The servers of a deployment."""
        await self._complete()
        return [report for report in self._living() if report.deployment == deployment]

    async def find(self, name: str) -> tuple[int, list[Place]]:
        """The newest version of a name, and the nodes that have it. Raises UnknownOrExpired."""
        await self._complete()
        found = self._newest(name)
        if not found[0]:
            raise UnknownOrExpired(f"no node of the cluster has the name {name!r}")
        return found

    async def versions(self, prefix: str) -> dict[str, int]:
        """The newest version of each name that begins with `prefix`."""
        await self._complete()
        found = {name for report in self._living() for name in report.held if name.startswith(prefix)}
        newest = {name: self._newest(name)[0] for name in sorted(found)}
        return {name: version for name, version in newest.items() if version}

    async def reserve(self, name: str, if_version: int | None, request: str) -> tuple[int, int]:
        """A version for a publication, which no other gets, and the newest version. The first is 0 if `if_version` is
        not the newest, or if another process publishes after it now. `request`: the same if Ray repeats the call."""
        await self._complete()
        newest = self._newest(name)[0]
        if if_version is not None:
            claimed, since, claimant = self._claims.get(name, (0, 0.0, ""))
            if claimant == request:
                return claimed, newest
            if if_version != newest or (claimed > newest and self._clock() - since < _CLAIM):
                return 0, newest
        self._highest[name] = max(self._highest.get(name, 0) + 1, self._first)
        if if_version is not None:
            self._claims[name] = (self._highest[name], self._clock(), request)
        return self._highest[name], newest

    async def give_up(self, name: str, version: int) -> None:
        """A publication under a reserved version has failed."""
        if name in self._claims and self._claims[name][0] == version:
            del self._claims[name]

    async def release(self, id: str, name: str) -> bool:
        """Forgets that a server has a name, if another one has its newest version: the server may then drop it."""
        report = self._reports[id][1] if id in self._reports else None
        if report is None or name not in report.held:
            return False
        if not any(place.id != id for place in self._newest(name)[1]):
            return False
        self._released[id, name] = report.held.pop(name)
        return True

    async def remove(self, name: str) -> bool:
        """Removes a name on all nodes. False if there is none."""
        await self._complete()
        newest, _ = self._newest(name)
        if not newest:
            return False
        self._removed[name] = newest  # not what is being published now
        self._tell()
        return True


def _was_started_again() -> bool:
    if not ray.is_initialized():
        return False
    with warnings.catch_warnings():  # Ray deprecates what this property itself uses
        warnings.simplefilter("ignore")
        return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def actors(begin: str) -> dict[str, Any]:
    """The actors of this package whose names begin so, by name."""
    found = {}
    for entry in list_named_actors(all_namespaces=True):
        if entry["namespace"] == NAMESPACE and entry["name"].startswith(begin):
            with contextlib.suppress(ValueError):  # it has ended meanwhile
                found[entry["name"]] = ray.get_actor(entry["name"], NAMESPACE)
    return found


def detached(server: type, name: str, **options: Any) -> Any:
    """An actor that lives as long as the cluster, and is started again. remote() makes it, or finds it."""
    forever = {"lifetime": "detached", "get_if_exists": True, "max_restarts": -1, "max_task_retries": -1}
    return ray.remote(server).options(name=name, namespace=NAMESPACE, num_cpus=0, **forever, **options)


def directory(**options: Any) -> Any:
    """The actor; starts it if there is none, with these options of Ray."""
    return detached(Directory, "directory", max_concurrency=10_000, **options).remote(secrets.token_hex(32))
