"""Names of a whole cluster, read from the server of the own node."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import ray

from ..client import Client
from ..errors import InvalidParams, UnknownOrExpired
from ..named_tensors import NamedTensor, NamedTensors, Published
from ..weights import Attached
from ._directory import Place, actors
from ._node import node_server
from ._serving import cluster, forget

_LOCK = threading.Lock()
_PLACES: dict[str, Place] = {}


def client(**options: Any) -> Client:
    """A client of the server of this node, which is started if there is none. `options`: of Client. If Ray starts the
    server again, the client goes on with the new one. Raises RuntimeError before ray.init()."""
    own = cluster()
    with _LOCK:
        if own.token not in _PLACES:
            _PLACES[own.token] = node_server(own)
        return own.client(_PLACES[own.token], **options)


def _invalid(parameter: str, expected: str, **data: Any) -> InvalidParams:
    data = {"parameter": parameter, "expected": expected, **data}
    return InvalidParams(f"{parameter}: expected {expected}", code=-32602, data=data)


def _conflict(parameter: str, newest: int) -> InvalidParams:
    expected = f"{newest}, the version now, which no other process replaces at the same time"
    return _invalid(parameter, expected, version=newest)


class ClusterNames(NamedTensors):
    """The named tensors of a Ray cluster. Any thread may use it. A process publishes to the server of its node, and
    reads from it without a copy. A node copies a version when one of its processes first asks for it, and then each
    newer version, until no process has used the name for ten minutes. Nodes that copy a version at the same time pass
    it on to each other.

    A version has the same number on all nodes. When publish() has returned, each later get() in the cluster returns the
    new version or a newer one. If all nodes that have the newest version fail, the newest of the others is the current
    one; a later publication is above both.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._node = client.options(timeout=None)

    def _fetch(self, name: str) -> None:
        if reason := self._node.call("node.fetch", name):
            raise UnknownOrExpired(reason, code=-32005)

    def _publish(
        self, send: Callable[[int], Published], name: str, if_version: int | None, base: int | None
    ) -> Published:
        if base is not None and if_version is not None:
            raise _invalid("if_version", "nothing beside base, which must be the version now", got="a version")
        if base is not None:
            self._fetch(name)  # the unchanged members are taken from there
        for _ in range(8):
            version, newest = self._node.call("node.reserve", name, if_version if base is None else base, os.getpid())
            if not version:
                raise _conflict("if_version" if base is None else "base", newest)
            try:
                made = send(version)
            except BaseException as error:
                self._node.call("node.give_up", name, version)
                data = error.data if isinstance(error, InvalidParams) else None
                if isinstance(data, dict) and data.get("parameter") == "version":
                    continue  # meanwhile the node has copied a newer version of another node
                raise
            if self._node.call("node.hold", name, version):
                return made
        raise RuntimeError(f"{name}: other nodes publish it faster than this one, or its server fails again and again")

    def publish(self, name: str, tensors: Any, *, if_version: int | None = None, **options: Any) -> Published:
        """As NamedTensors.publish(). `if_version` and `base` are versions of the cluster."""
        send = super().publish
        return self._publish(
            lambda version: send(name, tensors, version=version, **options), name, if_version, options.get("base")
        )

    def publish_file(
        self, name: str, path: str | os.PathLike[str], *, if_version: int | None = None, **options: Any
    ) -> Published:
        """As NamedTensors.publish_file()."""
        send = super().publish_file
        return self._publish(
            lambda version: send(name, path, version=version, **options), name, if_version, options.get("base")
        )

    def get(self, name: str, **options: Any) -> NamedTensor:
        """As NamedTensors.get(): the newest version of the cluster. Blocks until this node has it. `set/member` also
        copies the whole set to the node."""
        self._fetch(name.partition("/")[0])
        return super().get(name, **options)

    def watch(self, name: str, after: int = 0, timeout: float = 30.0) -> int | None:
        """As NamedTensors.watch(). A new version is seen when this node has copied it."""
        self._node.call("node.follow", name)
        return super().watch(name, after, timeout)

    def versions(self, prefix: str = "") -> dict[str, int]:
        """The newest version of each name of the cluster that begins with `prefix`, by name. list() shows those that
        this node has."""
        found: dict[str, int] = self._node.call("node.versions", prefix)
        return found

    def remove(self, name: str) -> bool:
        """Removes a name on all nodes: soon after this returns. Returns False if it does not exist. Tensors that were
        read before stay valid."""
        return bool(self._node.call("node.remove", name))


def names(**options: Any) -> ClusterNames:
    """The names of the cluster. `options`: of Client, `framework` for example."""
    return ClusterNames(client(**options))


def publish(name: str, tensors: Any, **options: Any) -> Published:
    """names().publish(name, tensors): a tensor, or a mapping of names to tensors, for all nodes. Blocks until readers
    get the new version."""
    return names(timeout=None).publish(name, tensors, **options)


def attach(model: Any, name: str, *, strict: bool = True) -> Attached:
    """As shared_tensor.attach(), for a name that any node has published: the model's parameters are the copy of this
    node, which all its processes share."""
    return Attached(model, name, names(framework="torch", timeout=None), strict)


def shutdown() -> None:
    """Ends the servers of all nodes, with what was published, and the directory. Deployments end with what made them.
    Other processes that used them must be started again."""
    for name, actor in actors("").items():
        if name == "directory" or name.startswith("node-"):
            ray.kill(actor)
    with _LOCK:
        _PLACES.clear()
    forget()
