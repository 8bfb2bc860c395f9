"""The C++ Node for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import _convert, _core
from .._addresses import reject_open_host
from ..client import Framework
from ..named_tensors import NamedTensor, Published, tensors_of
from .receiver import Receiver

T = TypeVar("T")


@dataclass(frozen=True)
class NodeMessage:
    """A tensor that another node pushed. The tensor belongs to the receiver, in the node's framework."""

    name: str
    tensor: Any


@dataclass(frozen=True)
class NodeStatistics:
    """Counts since the node was started."""

    published: int
    pulled: int
    pushed: int
    received: int
    failed: int
    """Failed publications, pulls and pushes."""
    rejected: int
    """Messages rejected because the inbox was full; a sender may have repeated them."""
    waiting: int
    """Messages in the inbox."""
    peers: int
    """Nodes that this node has a client for; after publish() also itself."""


_NOT_STARTED = "the node was not started: await start(), or use `async with`"
_SECRET = "token='...', a secret of at least 16 characters that all your nodes have. insecure=True serves without one"


class Node:
    """A server and a client in one process. One event loop uses it; `async with` starts it and shuts it down.

    host: other machines reach only a node with another host than 127.0.0.1, which needs `token` or `insecure`. port: 0:
    any free port. token: the secret of this node and of the nodes that it calls. local_socket: "none": tensors never
    cross through shared memory. certificate, key: for https. authorities: file with the authorities that may sign the
    certificates of other nodes. inbox_messages, inbox_bytes: limits of the inbox; a push to a full inbox is repeated
    for `push_timeout` seconds. framework: of the tensors that pull() and receive() return: see Client.options().
    concurrency: publications, pulls and pushes at once; more wait for their turn.

    A cancelled publish(), pull() or push() ends in its thread soon after. Errors: children of RpcError; RuntimeError
    before start().
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str = "",
        insecure: bool = False,
        local_socket: str = "auto",
        certificate: str = "",
        key: str = "",
        authorities: str = "",
        inbox_messages: int = 1000,
        inbox_bytes: int = 1 << 30,
        push_timeout: float = 30.0,
        framework: Framework = None,
        concurrency: int = 10,
    ) -> None:
        reject_open_host(host, bool(token) or insecure, _SECRET)
        self._options = {
            "host": host,
            "port": port,
            "token": token,
            "insecure": insecure,
            "local_socket": local_socket,
            "certificate": certificate,
            "key": key,
            "authorities": authorities,
            "inbox_messages": inbox_messages,
            "inbox_bytes": inbox_bytes,
            "push_timeout": push_timeout,
        }
        self._convert = _convert.converter(framework)
        self._threads = ThreadPoolExecutor(concurrency, "shared_tensor.node")
        self._running: _core.Node | None = None
        self._receiver: Receiver | None = None

    @property
    def _core(self) -> _core.Node:
        if self._running is None:
            raise RuntimeError(_NOT_STARTED)
        return self._running

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a method that blocks in a thread. The GIL is released while it blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(work, *arguments))

    async def _stoppable(self, work: Callable[..., T], *arguments: Any) -> T:
        """As _run(), for a method whose last argument ends its work."""
        stop = _core.Stop()
        try:
            return await self._run(work, *arguments, stop)
        except asyncio.CancelledError:
            stop.request()
            raise

    async def start(self) -> str:
        """Starts to serve, and returns the URL for other nodes."""
        if self._running is not None:
            raise RuntimeError("the node was started already")
        self._running = await self._run(functools.partial(_core.Node, **self._options))
        self._receiver = Receiver(self._running)
        return self._running.url()

    @property
    def url(self) -> str:
        """For nodes on this host. For other hosts, replace the host 0.0.0.0 by the host's name."""
        return self._core.url()

    async def publish(
        self,
        name: str,
        value: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        if_version: int | None = None,
        base: int | None = None,
    ) -> Published:
        """Publishes a tensor, or a dict of tensors as a set in one step, so that other nodes can pull it. The node
        makes a copy. if_version: only if this is the name's current version (0: if there is no such name). base: the
        tensors are those that differ from this version: see NamedTensors.publish()."""
        arguments = (name, tensors_of(name, value), dict(metadata or {}), if_version, base)
        return Published(*await self._stoppable(self._core.publish, *arguments))

    async def pull(
        self,
        url: str,
        name: str,
        *,
        version: int | None = None,
        first_row: int | None = None,
        last_row: int | None = None,
    ) -> NamedTensor:
        """Fetches a named tensor or set from another node, or only rows `first_row` to `last_row` (not included) of a
        tensor. version: raises UnknownOrExpired if it is not the current one."""
        pulled = await self._stoppable(self._core.pull, url, name, version, first_row, last_row)
        return NamedTensor(pulled, self._convert)

    async def push(self, url: str, name: str, tensor: Any) -> None:
        """Sends a tensor to the inbox of the node at `url`. Returns when it is in the inbox. Raises ServerBusy or
        ServerOutOfMemory if there was no room for `push_timeout` seconds."""
        await self._stoppable(self._core.push, url, name, _core.Tensor.from_dlpack(tensor))

    async def receive(self, timeout: float | None = None) -> NodeMessage | None:
        """Takes the oldest message out of the inbox. Waits for one at most `timeout` seconds. Returns None if none
        came, and after shutdown()."""
        if self._receiver is None:
            raise RuntimeError(_NOT_STARTED)
        message = await self._receiver.receive(timeout)
        return None if message is None else NodeMessage(message[0], self._converted(message[1]))

    def _converted(self, value: Any) -> Any:
        return value if self._convert is None else _convert.apply(value, self._convert)

    def statistics(self) -> NodeStatistics:
        """Counts since the node was started."""
        return NodeStatistics(**self._core.statistics())

    def peers(self) -> dict[str, dict[str, int]]:
        """For the url of each known node: the counts of this node's client for it, `connections_opened` for example."""
        return self._core.peers()

    async def shutdown(self) -> None:
        """Ends the calls in flight with ShuttingDown, and the server. May be called more than once."""
        if self._running is not None:
            await asyncio.to_thread(self._running.shutdown)
            self._end_receiving()

    def _end_receiving(self) -> None:
        if self._receiver is not None:
            self._receiver.close()

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def __repr__(self) -> str:
        where = self._running.url() if self._running is not None else "not started"
        return f"<shared_tensor.node.Node {where}>"
