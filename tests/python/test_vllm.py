"""The weight transfer backend of vLLM, with vLLM's own factories, sources and layer-wise reload, and a model of ours:
vLLM's engine itself does not run without a GPU."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import pytest

import shared_tensor
from shared_tensor import NamedTensors

torch = pytest.importorskip("torch", minversion="2.5")
transfer = pytest.importorskip("vllm.distributed.weight_transfer")

from vllm.config.weight_transfer import WeightTransferConfig  # noqa: E402

import shared_tensor.vllm as backend  # noqa: E402


class Model(torch.nn.Module):  # type: ignore[misc]
    """A model with vLLM's method for loading."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 7))

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> set[str]:
        own = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            load = getattr(own[name], "weight_loader", lambda parameter, given: parameter.data.copy_(given))
            load(own[name], tensor)
            loaded.add(name)
        return loaded


class Workers:
    """The control plane: what vLLM's HTTP routes or Ray actors do, in this process. Everything passes as JSON does."""

    def __init__(self, count: int) -> None:
        config = types.SimpleNamespace(parallel_config=None, model_config=types.SimpleNamespace(dtype=torch.float32))
        self.models = [Model() for _ in range(count)]
        self.engines = [
            transfer.WeightTransferEngineFactory.create_engine(
                WeightTransferConfig(backend="shared_tensor"), config, torch.device("cpu"), model
            )
            for model in self.models
        ]
        self.steps: list[str] = []

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        for engine in self.engines:
            engine.init_transfer_engine(engine.parse_init_info(init_info))

    def start_weight_update(self) -> None:
        self.steps.append("start")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.steps.append("update")
        for engine in self.engines:
            engine.receive_weights(engine.parse_update_info(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.steps.append("finish")


def test_each_worker_has_the_trainers_weights(client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARED_TENSOR_TOKEN", raising=False)
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # as each process of vLLM does: it finds the backend
    assert transfer.WeightTransferEngineFactory._registry["shared_tensor"]() is backend.SharedTensorEngine
    backend.register()
    model, workers = Model(), Workers(2)
    trainer = transfer.WeightTransferTrainerFactory.trainer_init(
        backend.SharedTensorTrainerInfo(name="policy", url=client.url, rank=0),
        client=workers,
        source=transfer.ModuleSource(model),
    )
    for step in range(3):
        with torch.no_grad():
            model.layers[0].weight.fill_(step)
        trainer.send_weights()
        for worker in workers.models:
            assert all(torch.equal(a, b) for a, b in zip(worker.parameters(), model.parameters(), strict=True))
    assert workers.steps == ["start", "update", "finish"] * 3
    names = NamedTensors(client)
    assert names.get("policy").version == 3
    names.remove("policy")


def test_layers_of_a_model_are_reloaded_as_vllm_does(
    client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    layerwise = pytest.importorskip("vllm.model_executor.model_loader.reload.layerwise")
    monkeypatch.delenv("SHARED_TENSOR_TOKEN", raising=False)
    backend.register()
    workers = Workers(1)
    engine = workers.engines[0]
    layerwise.record_metadata_for_reloading(workers.models[0])  # as vLLM does when it loads a model
    workers.init_weight_transfer_engine({"url": client.url, "name": "policy"})
    names = NamedTensors(client)
    version = names.publish("policy", {name: one.detach() + 1 for name, one in Model().named_parameters()}).version
    engine.start_weight_update()
    engine.receive_weights(engine.parse_update_info({"version": version}))
    engine.finish_weight_update()
    read = names.get("policy")
    for name, parameter in workers.models[0].named_parameters():
        assert torch.equal(parameter, torch.as_tensor(read[name])), name
    with pytest.raises(shared_tensor.errors.UnknownOrExpired):
        engine.receive_weights(backend.SharedTensorUpdateInfo(version + 1))
    names.remove("policy")


def test_a_trainer_without_whole_tensors_is_rejected(client: shared_tensor.Client) -> None:
    info = backend.SharedTensorTrainerInfo(name="policy", url=client.url, rank=0)
    with pytest.raises(ValueError, match="iter_full"):
        backend.SharedTensorTrainerEngine.trainer_init(info, client=Workers(1), source=None)
    source = transfer.ModuleSource(Model())
    source.metadata[0] = transfer.ParamMeta("layers.0.weight", torch.float32, (200, 300), owners=(1,))
    with pytest.raises(ValueError, match="rank 0 owns"):
        backend.SharedTensorTrainerEngine.trainer_init(info, client=Workers(1), source=source)
