"""Ranks that save and load a checkpoint: `checkpoint_ranks.py URL PORT RANK COUNT save|load`."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from shared_tensor import Client
from shared_tensor.checkpoint import PublishedReader, PublishedWriter

SHAPES = {"w": (103, 67), "b": (5,), "embed": (12, 8, 6)}


def state(count: int, placements: dict[str, Any], fill: bool) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (count,))
    torch.manual_seed(7)
    whole = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    given = whole if fill else {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    return {name: distribute_tensor(tensor, mesh, [placements[name]]) for name, tensor in given.items()}


def main(url: str, rank: int, count: int, what: str) -> None:
    client = Client(url)
    if what == "save":
        for step in (1, 2, 3):
            model = state(count, {"w": Shard(0), "b": Replicate(), "embed": Shard(1)}, True)
            dcp.save({"model": model, "step": step}, storage_writer=PublishedWriter("ranks", client))
        return
    columns = {"w": Shard(1), "b": Shard(0), "embed": Replicate()}
    read, wanted = state(count, columns, False), state(count, columns, True)
    values: dict[str, Any] = {"model": read, "step": 0}
    dcp.load(values, storage_reader=PublishedReader("ranks", client))
    assert values["step"] == 3
    for name, tensor in wanted.items():
        assert torch.equal(read[name].to_local(), tensor.to_local()), name


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2], RANK=sys.argv[3], WORLD_SIZE=sys.argv[4])
    dist.init_process_group("gloo")
    main(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    dist.destroy_process_group()
