"""Checkpoints of torch.distributed.checkpoint in a server."""

from __future__ import annotations

import os
import pathlib
import pickle
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Process, run_ranks

import shared_tensor
from shared_tensor import NamedTensors

torch = pytest.importorskip("torch", minversion="2.3")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.metadata import MetadataIndex  # noqa: E402
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType  # noqa: E402

from shared_tensor.checkpoint import PublishedReader, PublishedWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of DCP without a process group


@pytest.fixture(scope="module")
def provider(provider_of_tensors: Process) -> Process:
    return provider_of_tensors


@pytest.fixture(autouse=True)
def clean(client: shared_tensor.Client) -> Iterator[None]:
    yield
    names = NamedTensors(client)
    for left in names.list():
        names.remove(left.name)


def trained(step: int) -> tuple[Any, Any]:
    torch.manual_seed(step)
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200)).to(torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1 * step)
    model(torch.randn(4, 300)).sum().backward()
    optimiser.step()
    return model, optimiser


def state(model: Any, optimiser: Any, extra: dict[str, Any]) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "extra": extra}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def test_what_is_saved_is_loaded(client: shared_tensor.Client) -> None:
    extra = {"step": 3, "losses": [1.5, torch.arange(5)], "name": "run", "half": torch.ones(3, dtype=torch.bfloat16)}
    saved = state(*trained(1), extra)
    dcp.save(saved, storage_writer=PublishedWriter("run", client))
    empty = {
        "step": 0,
        "losses": [0.0, torch.zeros(5, dtype=torch.long)],
        "name": "",
        "half": torch.zeros(3).bfloat16(),
    }
    read = state(*trained(2), empty)
    assert not equal(read, saved)
    dcp.load(read, storage_reader=PublishedReader("run", client))
    assert equal(read, saved)


def test_the_tensors_of_one_process_are_members_of_one_set(client: shared_tensor.Client) -> None:
    model, _ = trained(1)
    dcp.save(model.state_dict(), storage_writer=PublishedWriter("model", client))
    other, _ = trained(2)
    attached = shared_tensor.attach(other, "model", client=client, strict=False)
    assert equal(other.state_dict(), model.state_dict())
    attached.detach()
    assert [info.name for info in NamedTensors(client).list()] == ["model"]


def test_what_would_write_into_an_earlier_checkpoint_is_rejected(client: shared_tensor.Client) -> None:
    name = f"Planner{secrets.token_hex(4)}"  # plans are cached by the name of the class
    planner = type(name, (dcp.DefaultSavePlanner,), {})(enable_plan_caching=True)
    dcp.save({"x": torch.ones(3)}, storage_writer=PublishedWriter("run", client), planner=planner)
    with pytest.raises(CheckpointException, match="enable_plan_caching"):
        dcp.save({"x": torch.zeros(3)}, storage_writer=PublishedWriter("run", client), planner=planner)
    with pytest.raises(ValueError, match="use_collectives"):
        PublishedWriter("run", client).set_up_storage_writer(True, rank=0, use_collectives=False)
    value = {"x": torch.zeros(3)}
    dcp.load(value, storage_reader=PublishedReader("run", client))
    assert value["x"].tolist() == [1] * 3


def test_a_newer_checkpoint_replaces_the_older_one(client: shared_tensor.Client) -> None:
    writer, reader = PublishedWriter("run", client), PublishedReader("run", client)
    value = {"x": torch.zeros(3)}
    for step in (1, 2):
        dcp.save({"x": torch.full((3,), float(step))}, storage_writer=writer)
        dcp.load(value, storage_reader=reader)
        assert value["x"].tolist() == [step] * 3
    dcp.save({"x": torch.full((3,), 7.0)}, checkpoint_id="other", storage_writer=writer)
    dcp.load(value, checkpoint_id="other", storage_reader=PublishedReader("run", client))
    assert value["x"].tolist() == [7] * 3


def test_a_save_that_dies_leaves_the_checkpoint_before(client: shared_tensor.Client) -> None:
    class Dies(PublishedWriter):
        def finish(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("killed")

    dcp.save({"x": torch.ones(3)}, storage_writer=PublishedWriter("run", client))
    with pytest.raises(CheckpointException, match="killed"):
        dcp.save({"x": torch.zeros(3)}, storage_writer=Dies("run", client))
    value = {"x": torch.zeros(3)}
    dcp.load(value, storage_reader=PublishedReader("run", client))
    assert value["x"].tolist() == [1] * 3


def test_a_checkpoint_that_was_replaced_while_it_is_loaded_is_not_mixed(client: shared_tensor.Client) -> None:
    class Slow(PublishedReader):
        def prepare_local_plan(self, plan: Any) -> Any:
            dcp.save({"x": torch.zeros(3)}, storage_writer=PublishedWriter("run", client))
            return super().prepare_local_plan(plan)

    dcp.save({"x": torch.ones(3)}, storage_writer=PublishedWriter("run", client))
    with pytest.raises(CheckpointException, match="load again"):
        dcp.load({"x": torch.zeros(3)}, storage_reader=Slow("run", client))


def test_what_is_no_checkpoint_is_rejected(client: shared_tensor.Client) -> None:
    with pytest.raises(CheckpointException, match="Unknown or expired"):
        dcp.load({"x": torch.zeros(3)}, storage_reader=PublishedReader("nothing", client))
    NamedTensors(client).publish("weights", {"a": torch.ones(3)})
    with pytest.raises(CheckpointException, match="not a checkpoint"):
        dcp.load({"x": torch.zeros(3)}, storage_reader=PublishedReader("weights", client))
    with pytest.raises(CheckpointException, match="name"):
        dcp.save({"x": torch.zeros(3)}, checkpoint_id="a/b", storage_writer=PublishedWriter("run", client))


def test_a_save_removes_only_parts_of_its_own_checkpoint(client: shared_tensor.Client) -> None:
    names = NamedTensors(client)
    others = ["run-1.0.7", "run-1.1.7", "run-1.part-0.7", "run-1.part-1.8"]
    for other in others:
        names.publish(other, {"w": torch.ones(3)})
    names.publish("run-1.part-0.9", torch.ones(3))
    for slot in (0, 1):  # as an earlier save by more ranks
        names.publish(f"run-1.part-{slot}.3", {"w": torch.ones(3)}, metadata={"checkpoint": "run-1"})
    for _ in range(2):
        dcp.save({"x": torch.ones(3)}, storage_writer=PublishedWriter("run-1", client))
    assert {info.name for info in names.list()} == {"run-1", *others, "run-1.part-0.9"}


def test_names_that_the_checkpoint_needs_are_rejected(client: shared_tensor.Client) -> None:
    with pytest.raises(CheckpointException, match=r"'\.index', as the index of the checkpoint is: rename it"):
        dcp.save({".index": torch.ones(3)}, storage_writer=PublishedWriter("run", client))
    plan = SavePlan([WriteItem(MetadataIndex(*at), WriteItemType.TENSOR) for at in (("w", [1]), ("w@[1]", [0]))])
    with pytest.raises(ValueError, match=r"'w@\[1\]', as a part of 'w' is: rename it"):
        PublishedWriter("run", client).write_data(plan, dcp.DefaultSavePlanner())
    dcp.save({"v@[1]": torch.ones(4)}, storage_writer=PublishedWriter("run", client))
    value = {"v@[1]": torch.zeros(4)}
    dcp.load(value, storage_reader=PublishedReader("run", client))
    assert value["v@[1]"].tolist() == [1] * 4


@pytest.mark.parametrize(
    "index",
    [
        b"xx",
        b"\xff",
        b"[]",
        b'{"slot": 0}',
        b'{"slot": 9, "items": [], "planner": null, "values": {"x": {"dtype": "load", "size": [3], "chunks": []}}}',
    ],
)
def test_a_damaged_index_is_named_and_replaced(client: shared_tensor.Client, index: bytes) -> None:
    NamedTensors(client).publish("run", {".index": torch.frombuffer(bytearray(index), dtype=torch.uint8)})
    value = {"x": torch.zeros(3)}
    with pytest.raises(CheckpointException, match="the index of the checkpoint run is damaged"):
        dcp.load(value, storage_reader=PublishedReader("run", client))
    dcp.save({"x": torch.ones(3)}, storage_writer=PublishedWriter("run", client))
    dcp.load(value, storage_reader=PublishedReader("run", client))
    assert value["x"].tolist() == [1] * 3


def test_a_writer_without_a_client_can_go_to_another_process(
    client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_TENSOR_URL", client.url)
    writer = PublishedWriter("run")
    dcp.save({"x": torch.zeros(3)}, storage_writer=writer)
    dcp.save({"x": torch.ones(3)}, storage_writer=pickle.loads(pickle.dumps(writer)))
    value = {"x": torch.zeros(3)}
    dcp.load(value, storage_reader=pickle.loads(pickle.dumps(PublishedReader("run"))))
    assert value["x"].tolist() == [1] * 3


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(pathlib.Path(os.environ["EVIL"])),)


def test_a_value_that_could_run_code_is_not_loaded(
    client: shared_tensor.Client, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVIL", str(tmp_path / "ran"))
    dcp.save({"value": Evil(), "x": torch.zeros(2)}, storage_writer=PublishedWriter("run", client))
    with pytest.raises(CheckpointException, match="Weights only load failed"):
        dcp.load({"value": 1, "x": torch.ones(2)}, storage_reader=PublishedReader("run", client))
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Evil()))  # it would have
    assert (tmp_path / "ran").exists()


def test_other_ranks_load_other_parts(client: shared_tensor.Client) -> None:
    pytest.importorskip("torch", minversion="2.5")
    run_ranks("checkpoint_ranks.py", client.url, 3, "save")
    parts = [f"ranks.part-{slot}.{rank}" for slot in range(2) for rank in range(3)]
    assert [info.name for info in NamedTensors(client).list()] == ["ranks", *parts]
    run_ranks("checkpoint_ranks.py", client.url, 2, "load")
    run_ranks("checkpoint_ranks.py", client.url, 2, "save")  # takes the place of what three ranks saved
    left = [f"ranks.part-{slot}.{rank}" for slot in range(2) for rank in range(2)]
    assert [info.name for info in NamedTensors(client).list()] == ["ranks", *left]
