"""The server of a node: its named tensors, and copies of other nodes' named tensors."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import threading
import time
from collections import defaultdict

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._core import NamedTensorCopy
from ..errors import InvalidParams, RpcError, ServerOutOfMemory, TransportFailure, UnknownOrExpired
from ..named_tensors import NamedTensors
from ..provider import SharedTensorProvider
from ._directory import Place, detached
from ._serving import Cluster, Serving, cluster, get

IDLE_TIME = 600.0
"""Seconds after the last use by a process of the node in which a node goes on to copy new versions of a name."""


def _beginning(pid: int) -> str | None:
    """When a process of this node began, in clock ticks since the machine's start; None if it has ended. A later
    process with the same number began at another time."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


class NodeServer:
    """An actor on each node that is used. Processes of the node call its functions by shared_tensor."""

    def __init__(self) -> None:
        provider = SharedTensorProvider(0, execution_mode="server", name="ray node")
        functions = self.fetch, self.follow, self.reserve, self.give_up, self.hold, self.remove, self.versions
        for function in functions:
            provider.register(f"node.{function.__name__}", function, timeout=3600.0)
        self._copying: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # taken before the next
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # what the server has, and says
        self._used: dict[str, float] = {}  # of names that other nodes published
        self._publishers: dict[tuple[str, int], tuple[int, str]] = {}  # who has reserved a version: pid and beginning
        own = cluster()
        name = f"node-{own.node[:24]}"
        self._directory = own.directory
        self._newest: dict[str, int] = {}
        self._again_at: dict[str, float] = {}  # when a name is tried again
        self._changed = threading.Event()
        self._serving = Serving(provider, name, {"workers": 16}, on_versions=self._note)
        self._client = own.client(self._serving.place, timeout=None, framework="none")
        self._names = NamedTensors(self._client)
        self._serving.start()
        threading.Thread(target=self._follow_all, name="shared_tensor copies", daemon=True).start()

    def place(self) -> Place:
        """For other processes."""
        return self._serving.place

    # ---- functions for processes of the node

    def reserve(self, name: str, if_version: int | None, pid: int) -> list[int]:
        """The version under which a process of this node may publish, or 0, and the newest version. `pid`: of the
        process. If it ends before hold() or give_up(), this server calls one of them in its place."""
        version, newest = get(self._directory.reserve.remote(name, if_version, secrets.token_hex(8)))
        if version and (beginning := _beginning(pid)):
            self._publishers[name, version] = pid, beginning
        return [version, newest]

    def give_up(self, name: str, version: int) -> None:
        """A process of this node could not publish under a reserved version."""
        self._publishers.pop((name, version), None)
        get(self._directory.give_up.remote(name, version))

    def hold(self, name: str, version: int) -> bool:
        """A process of this node has published. Returns False if that is lost: the server was started again."""
        self._publishers.pop((name, version), None)
        with self._locks[name]:
            if not any(info.name == name and info.version >= version for info in self._names.list(name)):
                return False
            self._used.pop(name, None)
            self._serving.hold(name, version)
            return True

    def follow(self, name: str) -> None:
        """Copies each new version to this node from now on."""
        self._used[name] = time.monotonic()
        if self._serving.held(name) is None:
            self._serving.hold(name, 0)

    def fetch(self, name: str) -> str:
        """Copies the newest version to this node, if it lacks it. Returns why that is not possible, else ""."""
        try:
            version, places = get(self._directory.find.remote(name))
            if name in self._used:
                self._used[name] = time.monotonic()
            self._copy(name, version, places)
        except UnknownOrExpired as error:
            return str(error)
        return ""

    def remove(self, name: str) -> bool:
        """Removes a name on all nodes."""
        return bool(get(self._directory.remove.remote(name)))

    def versions(self, prefix: str) -> dict[str, int]:
        """The newest version of each name."""
        return dict(get(self._directory.versions.remote(prefix)))

    # ---- copies

    def _copy(self, name: str, version: int, places: list[Place]) -> int:
        with self._copying[name]:
            held = self._serving.held(name) or 0
            if held >= version:
                return held
            for place in places:
                client = self._serving.cluster.client(place, timeout=None, framework="none")
                try:
                    pulled = self._serving.pull(client, name)
                except ServerOutOfMemory:  # of the server of this node
                    raise
                except RpcError as error:
                    print(f"shared_tensor.ray: {name} version {version} from {place.url}: {error}", flush=True)
                    if isinstance(error, TransportFailure):
                        get(self._directory.leave.remote(place.id))
                    continue
                with self._locks[name]:
                    return self._publish(name, pulled)
        raise UnknownOrExpired(f"{name} version {version}: no node that has it could be reached")

    def _publish(self, name: str, pulled: NamedTensorCopy) -> int:
        try:
            version = pulled.publish()
        except InvalidParams:  # a process of this node has published a newer version
            version = self._names.get(name).version
        self._used.setdefault(name, time.monotonic())
        self._serving.hold(name, version)
        return version

    def _note(self, newest: dict[str, int]) -> None:
        self._newest = newest
        self._changed.set()
        self._end_publications()

    def _end_publications(self) -> None:
        """Of processes that have ended: what they had published before counts, and other versions are given up."""
        for (name, version), (pid, beginning) in list(self._publishers.items()):
            if _beginning(pid) != beginning and not self.hold(name, version):
                self.give_up(name, version)

    def _follow_all(self) -> None:
        """Not on the thread that reports: a copy may take minutes."""
        while True:
            self._changed.wait()
            self._changed.clear()
            for name, version in self._newest.items():
                if time.monotonic() < self._again_at.get(name, 0):
                    continue
                try:
                    self._keep_up(name, version)
                    self._again_at.pop(name, None)
                except Exception as error:  # the other names go on
                    self._again_at[name] = time.monotonic() + 10
                    print(f"shared_tensor.ray: {name} version {version} is tried again in 10 s: {error}", flush=True)

    def _keep_up(self, name: str, newest: int) -> None:
        """Copies what is new, and drops what was removed or is not used."""
        held = self._serving.held(name)
        if held is None:
            return
        is_idle = time.monotonic() - self._used.get(name, time.monotonic()) > IDLE_TIME
        if is_idle and held and newest:
            if get(self._directory.release.remote(self._serving.place.id, name)):
                self._drop(name, held)
        elif is_idle or (held and not newest):
            self._drop(name, held)
        elif newest > held:
            self._copy(name, *get(self._directory.find.remote(name)))

    def _drop(self, name: str, version: int) -> None:
        """Unless a process of this node has published a newer one meanwhile."""
        with self._locks[name]:
            if self._serving.held(name) != version:
                return
            if version:
                with contextlib.suppress(InvalidParams, UnknownOrExpired):
                    self._client.call("tensor.delete", name=name, if_version=version)
            self._used.pop(name, None)
            self._serving.hold(name, None)


def node_server(own: Cluster) -> Place:
    """The server of this node; starts it if there is none. Blocks."""
    here = NodeAffinitySchedulingStrategy(own.node, soft=False)
    actor = detached(NodeServer, f"node-{own.node}", scheduling_strategy=here).remote()
    place: Place = get(actor.place.remote())
    return place
