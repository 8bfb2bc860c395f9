"""The names of tensor_iroh, over a Node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _convert, _core
from .node import Node


class PyTensorData:
    """A tensor as bytes, shape and dtype. The bytes are copied."""

    def __init__(self, data: Any, shape: Sequence[int], dtype: str, requires_grad: bool = False) -> None:
        """data: bytes or anything with its contiguous memory (a NumPy array), the elements in C order. dtype:
        "float32" or any other name of a dtype in torch."""
        self._tensor = _core.tensor_of_bytes(data, list(shape), dtype)
        self.requires_grad = requires_grad

    @property
    def shape(self) -> list[int]:
        """Elements in each dimension."""
        return list(self._tensor.shape)

    @property
    def dtype(self) -> str:
        """The dtype's name in torch: "float32"."""
        return self._tensor.dtype

    def as_bytes(self) -> bytes:
        """A copy of the elements, in C order."""
        return _core.bytes_of_tensor(self._tensor)

    def as_numpy(self) -> Any:
        """The bytes as an array of uint8 with one dimension. numpy.from_dlpack() gives an array of the shape."""
        import numpy

        return numpy.frombuffer(self.as_bytes(), numpy.uint8)

    def to_torch(self) -> Any:
        """A torch.Tensor on the same memory, without a copy."""
        return _convert.to_torch(self._tensor).requires_grad_(self.requires_grad)

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    def __repr__(self) -> str:
        return f"PyTensorData({self.shape}, {self.dtype!r})"


class ReceivedTensor(PyTensorData):
    """A tensor that came from another node. `name, data = received` works as well: newer versions of tensor_iroh
    return a pair, older ones the tensor."""

    def __init__(self, name: str, tensor: _core.Tensor) -> None:
        self.name = name
        self._tensor = tensor
        self.requires_grad = False

    def __iter__(self) -> Iterator[Any]:
        return iter((self.name, self))


class PyTensorNode:
    """A Node with the methods of tensor_iroh. Parameters: those of Node. An address is the URL of a node."""

    def __init__(self, **options: Any) -> None:
        self._node = Node(**options, framework="none")

    async def start(self) -> None:
        """Starts to serve."""
        await self._node.start()

    async def get_node_addr(self) -> str:
        """The URL of this node, for other nodes."""
        return self._node.url

    def register_tensor(self, name: str, tensor: PyTensorData) -> None:
        """Publishes a tensor, so that other nodes can pull it. Blocks while it is copied."""
        self._node._core.publish(name, _core.Tensor.from_dlpack(tensor), {}, None, None, _core.Stop())

    async def pull_tensor(self, peer: str, name: str) -> ReceivedTensor:
        """Fetches a tensor that another node registered. tensor_iroh's protocol has this, its Python API does not."""
        return ReceivedTensor(name, (await self._node.pull(peer, name)).tensor)

    async def send_tensor(self, peer: str, name: str, tensor: PyTensorData) -> None:
        """Returns when the tensor is in the inbox of the other node."""
        await self._node.push(peer, name, tensor)

    async def receive_tensor(self, timeout: float = 0.0) -> ReceivedTensor | None:
        """Returns the oldest tensor of the inbox, or None if there is none within `timeout` seconds."""
        message = await self._node.receive(timeout)
        await asyncio.sleep(0)  # a loop that asks again and again must not block the event loop
        return None if message is None else ReceivedTensor(message.name, message.tensor)

    async def pool_size(self) -> int:
        """How many other nodes this node keeps connections to. They are closed after 5 idle minutes; there are at most
        10 to each node."""
        own = self._node.url
        return sum(url != own and counts["connections_opened"] > 0 for url, counts in self._node.peers().items())

    def shutdown(self) -> None:
        """Ends the node. Blocks until its server has stopped, usually a few milliseconds."""
        if self._node._running is not None:
            self._node._running.shutdown()
            self._node._end_receiving()
