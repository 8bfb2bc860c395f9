"""Weights from a trainer to the engines of vLLM, as the weight transfer backend "shared_tensor".

    # engine: vllm serve MODEL --weight-transfer-config '{"backend": "shared_tensor"}'
    # trainer:
    engine = WeightTransferTrainerFactory.trainer_init(
        SharedTensorTrainerInfo(name="policy", rank=0), client=HTTPVLLMWeightSyncClient(url), source=ModuleSource(model)
    )
    engine.send_weights()       # after each step

The trainer publishes the weights in a server, and each worker of each engine reads them there: on the server's host
from shared memory, on other hosts over the network, in a swarm. So a trainer sends them once, however many workers
there are. Nothing is pickled. vLLM finds the backend by an entry point of this package; it was tried with vLLM 0.33.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferEngine,
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo

from .client import Client
from .named_tensors import NamedTensors

BACKEND = "shared_tensor"


@dataclass
class SharedTensorInitInfo(WeightTransferInitInfo):
    """What a worker is told first: the server and the name. Its token is in its own SHARED_TENSOR_TOKEN."""

    url: str
    name: str


@dataclass
class SharedTensorUpdateInfo(WeightTransferUpdateInfo):
    """What a worker is told for each update."""

    version: int


@dataclass
class SharedTensorTrainerInfo(TrainerInitInfo):
    """What the trainer says: the name to publish, and the server as workers reach it; None: SHARED_TENSOR_URL, or this
    host's. The token is in SHARED_TENSOR_TOKEN."""

    backend: ClassVar[str] = BACKEND
    name: str
    url: str | None = None


def _names(url: str | None) -> NamedTensors:
    return NamedTensors(Client(url, os.environ.get("SHARED_TENSOR_TOKEN"), timeout=None, framework="torch"))


class SharedTensorEngine(WeightTransferEngine[SharedTensorInitInfo, SharedTensorUpdateInfo]):
    """The side of a vLLM worker."""

    init_info_cls = SharedTensorInitInfo
    update_info_cls = SharedTensorUpdateInfo

    def init_transfer_engine(self, init_info: SharedTensorInitInfo) -> None:
        """Called by vLLM."""
        self._names, self._name = _names(init_info.url), init_info.name

    def start_weight_update(self) -> None:
        """Called by vLLM."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: SharedTensorUpdateInfo) -> None:
        """Called by vLLM. Raises UnknownOrExpired if the trainer has published a newer version meanwhile."""
        weights = self._names.get(self._name, version=update_info.version, swarm=True)
        self.model.load_weights((name, weights[name]) for name in weights)

    def finish_weight_update(self) -> None:
        """Called by vLLM."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Called by vLLM."""


class SharedTensorTrainerEngine(TrainerWeightTransferEngine[SharedTensorTrainerInfo]):
    """The trainer's side. Of several ranks, all gather the tensors, and rank 0 publishes them."""

    init_info_cls = SharedTensorTrainerInfo

    def __init__(self, info: SharedTensorTrainerInfo, client: VLLMWeightSyncClient, source: WeightSource) -> None:
        super().__init__(client=client, source=source, is_sender=info.is_sender, rank=info.rank)
        self._name = info.name
        self._names = _names(info.url)

    @classmethod
    def trainer_init(
        cls, init_info: SharedTensorTrainerInfo, *, client: VLLMWeightSyncClient, source: WeightSource | None = None
    ) -> SharedTensorTrainerEngine:
        """Called by WeightTransferTrainerFactory. Tells the workers where the weights will be."""
        if source is None or not source.implements_iter_full():
            raise ValueError("the backend shared_tensor needs a WeightSource that implements iter_full()")
        if any(one.owners is not None and 0 not in one.owners for one in source.metadata):
            raise ValueError("the backend shared_tensor needs a source of which rank 0 owns every parameter")
        made = cls(init_info, client, source)
        if made.is_sender:
            client.init_weight_transfer_engine({"url": made._names._client.url, "name": init_info.name})
        return made

    def send_weights(self) -> None:
        """Publishes the weights, and returns when all workers have taken them. Tensors on a GPU are copied to the host
        one by one. Raises the errors of NamedTensors.publish() and of the client."""
        weights: dict[str, Any] = {}
        for name, tensor in self.source.iter_full():
            if self.is_sender:
                weights[name] = tensor.detach().to("cpu", memory_format=torch.contiguous_format)
        if not self.is_sender:
            return
        version = self._names.publish(self._name, weights).version
        self.client.start_weight_update()
        self.client.update_weights({"version": version})
        self.client.finish_weight_update()


@functools.cache
def register() -> None:
    """Makes the backend known to vLLM, which calls this in each of its processes; call it in the trainer. Later calls
    do nothing."""
    WeightTransferEngineFactory.register_engine(BACKEND, SharedTensorEngine)
    WeightTransferTrainerFactory.register_engine(BACKEND, SharedTensorTrainerEngine)


__all__ = [
    "SharedTensorEngine",
    "SharedTensorInitInfo",
    "SharedTensorTrainerEngine",
    "SharedTensorTrainerInfo",
    "SharedTensorUpdateInfo",
    "register",
]
