"""Sets of which each process holds a part, read as other parts; beside DTensor's own redistribution."""

from __future__ import annotations

import types
from typing import Any

import pytest
from conftest import run_ranks

import shared_tensor
from shared_tensor import errors, sharding


def test_parts_are_those_of_dtensor(client: shared_tensor.Client) -> None:
    torch = pytest.importorskip("torch", minversion="2.5")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    try:
        run_ranks("sharding_ranks.py", client.url, 4)
    finally:
        names = shared_tensor.NamedTensors(client)
        for left in names.list("weights-"):
            names.remove(left.name)


def test_tensors_that_cannot_be_published_are_rejected() -> None:
    pytest.importorskip("torch", minversion="2.5")
    from torch.distributed.tensor import Partial, Shard

    def tensor(mesh: Any, placement: Any) -> Any:
        return types.SimpleNamespace(device_mesh=mesh, placements=[placement], ndim=1, shape=(4,))

    class Mesh:
        shape = (2,)

        def get_coordinate(self) -> list[int] | None:
            return None

    with pytest.raises(ValueError, match="2 meshes"):
        sharding.publish("x", {"a": tensor(1, Shard(0)), "b": tensor(2, Shard(0))})
    with pytest.raises(ValueError, match="not in the mesh"):
        sharding.publish("x", {"a": tensor(Mesh(), Shard(0))})
    with pytest.raises(ValueError, match="redistribute it"):
        sharding._placements("a", tensor(Mesh(), Partial()))


def test_publishers_that_are_missing_are_named(client: shared_tensor.Client) -> None:
    core = client._core
    wanted: Any = {"a": [None]}
    with pytest.raises(errors.UnknownOrExpired):
        shared_tensor._core.get_sharded([(core, "nobody")], wanted, [1], [0], None, 0.0)
    with pytest.raises(ValueError, match="at least one publisher"):
        shared_tensor._core.get_sharded([], wanted, [1], [0], None, 0.0)
