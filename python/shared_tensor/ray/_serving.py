"""A server in a process of Ray, which the directory knows."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import ray

from .. import _core
from ..client import Client
from ..provider import SharedTensorProvider
from ._directory import HEARTBEAT, Place, Report, directory
from ._metrics import Metrics


def _tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def _certificate() -> tuple[str, str]:
    """The files of the certificate and the key of this node."""
    return os.environ.get("RAY_TLS_SERVER_CERT", ""), os.environ.get("RAY_TLS_SERVER_KEY", "")


def _path(name: str) -> str:
    """A path in a folder that only this user can change. Raises PermissionError if there is another one."""
    folder = os.path.join(tempfile.gettempdir(), f"shared_tensor-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    found = os.lstat(folder)  # no link: another user may have made it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that only you can change: remove it, or set TMPDIR")
    return os.path.join(folder, name)


def get(reference: Any, timeout: float | None = 60.0) -> Any:
    """ray.get(), with the error that the actor raised."""
    try:
        return ray.get(reference, timeout=timeout)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


class Cluster:
    """The directory and the token, as this process knows them."""

    def __init__(self) -> None:
        self.directory = directory()
        self.token: str = get(self.directory.token.remote())
        self.node: str = ray.get_runtime_context().get_node_id()

    def client(self, place: Place, **options: Any) -> Client:
        """A client of a server. On another node it shares no memory, whatever the machine."""
        if place.node == self.node:
            return Client(f"unix:{place.socket}", self.token, **options)
        if _tls():
            options["authorities"] = os.environ.get("RAY_TLS_CA_CERT", "")
            options["certificate"], options["key"] = _certificate()
        return Client(place.url, self.token, local_socket="none", **options)


_LOCK = threading.Lock()
_CLUSTERS: dict[str, Cluster] = {}


def forget() -> None:
    """The next use asks for the directory again."""
    with _LOCK:
        _CLUSTERS.clear()


def cluster() -> Cluster:
    """The cluster that this process is connected to. Raises RuntimeError before ray.init()."""
    if not ray.is_initialized():
        raise RuntimeError("shared_tensor.ray needs a cluster: call ray.init() first")
    job = ray.get_runtime_context().get_job_id() + ray.get_runtime_context().gcs_address
    with _LOCK:
        if job not in _CLUSTERS:
            _CLUSTERS[job] = Cluster()
        return _CLUSTERS[job]


def _start(provider: SharedTensorProvider, token: str, path: str, options: dict[str, Any]) -> str:
    """Starts the server at a port of this node's address and at PATH.sock, and returns its URL."""
    if _tls():
        certificate, key = _certificate()
        options.setdefault("tls_certificate", certificate)
        options.setdefault("tls_key", key)
    _sweep(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(f"{path}.sock")
    token_file = f"{path}.token"
    with open(token_file, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(f"ray:{token}:admin\n")
    host = ray.util.get_node_ip_address()
    return provider.start(0, host, unix_socket=f"{path}.sock", token_file=token_file, **options)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
    return True


def _sweep(folder: str) -> None:
    """Removes the sockets of processes that were killed, then tokens and links to local channels without a socket."""
    entries = [entry for entry in os.scandir(folder) if entry.name.startswith(("node-", "replica-", "objects-"))]
    for entry in sorted(entries, key=lambda entry: not entry.name.endswith(".sock")):
        name, _, kind = entry.name.partition(".")
        if kind not in ("sock", "sock.local", "token"):
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < 60:
                continue  # it may be about to listen
            if not (_listens(entry.path) if kind == "sock" else os.path.exists(os.path.join(folder, f"{name}.sock"))):
                os.unlink(entry.path)


class Serving:
    """Serves a provider from start() on, and reports to the directory. Any thread may use it.

    `name`: of the Unix socket, at most 40 characters. If a process that was started again has the same name, clients of
    the node go on with it. `on_versions` is called on a thread of this class with the answer to each report."""

    def __init__(
        self,
        provider: SharedTensorProvider,
        name: str,
        options: dict[str, Any],
        deployment: str = "",
        on_versions: Callable[[dict[str, int]], None] | None = None,
    ) -> None:
        self.cluster = cluster()
        self._path = _path(name)
        self.place = Place(secrets.token_hex(8), self.cluster.node, "", f"{self._path}.sock")
        self._provider = provider
        self._options = options
        self._deployment = deployment
        functions = provider._registered_functions.values()
        self._repeatable = frozenset(one.name for one in functions if one.idempotent or one.cache_ms > 0)
        self._on_versions = on_versions
        self._held: dict[str, int] = {}
        self._reports = 0
        self._lock = threading.Lock()  # held until the server's URL is known
        self._stop = threading.Event()

    def start(self) -> None:
        """Blocks until the directory knows the server. Functions may run before this returns."""
        with self._lock:
            url = _start(self._provider, self.cluster.token, self._path, dict(self._options))
            self.place = dataclasses.replace(self.place, url=url)
            sent = self._report()
        get(sent)
        authorities = os.environ.get("RAY_TLS_CA_CERT", "") if _tls() else ""
        self._metrics = Metrics(self.place, self.cluster.token, authorities, self._deployment or "node")
        threading.Thread(target=self._keep_reporting, name="shared_tensor reports", daemon=True).start()

    def _report(self, known: dict[str, int] | None = None) -> Any:
        """Sends a report; needs the lock."""
        self._reports += 1
        report = Report(self.place, self._deployment, self._repeatable, dict(self._held), self._reports)
        return self.cluster.directory.report.remote(report, known)

    def hold(self, name: str, version: int | None) -> None:
        """Reports that this node has this version; None: that it has none."""
        with self._lock:
            if version is None:
                self._held.pop(name, None)
            else:
                self._held[name] = max(version, self._held.get(name, 0))
            sent = self._report()
        get(sent)

    def held(self, name: str) -> int | None:
        """The version that this node has; None: it does not follow the name."""
        with self._lock:
            return self._held.get(name)

    def pull(self, source: Client, name: str) -> _core.NamedTensorCopy:
        """A version of another server, in memory of this one, which its publish() publishes here. Blocks."""
        server = self._provider._server
        assert server is not None, "start() comes first"
        return _core.NamedTensorCopy(server, self.cluster.token, source._core, name)

    def _keep_reporting(self) -> None:
        known: dict[str, int] | None = None
        while not self._stop.is_set():
            try:
                with self._lock:
                    sent = self._report(known)
                known = get(sent, 10 * HEARTBEAT)
                if self._on_versions is not None:
                    self._on_versions(known)
            except Exception as error:  # the server must stay known, whatever has happened
                print(f"shared_tensor.ray: a report failed and is repeated: {error}", flush=True)
                known = None
                time.sleep(HEARTBEAT / 2)
            self._metrics.show()

    def stop(self, drain_time: float | None = None) -> None:
        """Leaves the directory, and ends the server: see SharedTensorProvider.stop()."""
        self._stop.set()
        with contextlib.suppress(ray.exceptions.RayError):  # then the report expires
            get(self.cluster.directory.leave.remote(self.place.id), HEARTBEAT)
        self._provider.stop(drain_time)
        for kind in ("sock", "token"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._path}.{kind}")
