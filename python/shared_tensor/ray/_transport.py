"""A tensor transport for Ray: other actors read the tensors that an actor returned through shared memory, or over the
network from another node."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import ray
from ray.experimental import TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.tensor_transport_manager import CommunicatorMetadata

from ..named_tensors import NamedTensors
from ..provider import SharedTensorProvider
from ._directory import Place
from ._serving import Serving, cluster

NAME = "SHARED_TENSOR"


@dataclass
class Metadata(TensorTransportMetadata):
    """Where the tensors of an object are."""

    place: Place | None = None


class _Source:
    """The server of this process for the objects that its methods return. They end with the process, as Ray expects."""

    def __init__(self) -> None:
        provider = SharedTensorProvider(0, execution_mode="server", name="ray objects")
        self._serving = Serving(
            provider, f"objects-{ray.get_runtime_context().get_worker_id()[:28]}", {}, "ray objects"
        )
        self._serving.start()
        self.place = self._serving.place
        self.names = NamedTensors(cluster().client(self.place, timeout=None))


_LOCK = threading.Lock()
_SOURCE: _Source | None = None


def _source() -> _Source:
    global _SOURCE
    with _LOCK:
        if _SOURCE is None:
            _SOURCE = _Source()
        return _SOURCE


class SharedTensorTransport(TensorTransportManager):
    """Made by Ray in each process. One-sided: the receiver fetches."""

    def tensor_transport_backend(self) -> str:
        """The name for `tensor_transport=`."""
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        """The sender takes no part in a transfer."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """A transfer that fails leaves nothing behind."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Each actor whose environment has this package."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Metadata:
        """Publishes the tensors of an object: one copy, or none of tensors from Client.empty()."""
        if not rdt_object:
            return Metadata([], None, None)
        source = _source()
        source.names.publish(obj_id, {str(number): tensor.detach() for number, tensor in enumerate(rdt_object)})
        forms = [(tensor.shape, tensor.dtype) for tensor in rdt_object]
        return Metadata(forms, rdt_object[0].device.type, source.place)

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing is needed."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Metadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Fetches the tensors, to the device of the source's tensors. What the receiver writes to them is its own."""
        if tensor_transport_metadata.place is None:
            return []
        client = cluster().client(tensor_transport_metadata.place, framework="torch", timeout=None)
        read = NamedTensors(client).get(obj_id)
        tensors = [read[str(number)] for number in range(len(read))]
        if target_buffers is None:
            device = tensor_transport_metadata.tensor_device
            return tensors if device == "cpu" else [tensor.to(device) for tensor in tensors]
        for buffer, tensor in zip(target_buffers, tensors, strict=True):
            buffer.copy_(tensor)
        return target_buffers

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        """Is not called."""
        raise NotImplementedError("the receiver fetches")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: list[Any]) -> None:
        """Removes an object. Receivers keep what they have."""
        if tensor_transport_meta.place is not None:
            _source().names.remove(obj_id)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Nothing goes on after a failed transfer."""
