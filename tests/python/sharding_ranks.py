"""Processes of a mesh that publish their parts and read other parts: `sharding_ranks.py URL PORT RANK COUNT`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from shared_tensor import Client, sharding

SHAPES = {"w": (103, 67), "b": (5,), "embed": (12, 8, 6)}


def whole(step: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(step)
    return {name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in SHAPES.items()}


def placed(tensors: dict[str, torch.Tensor], mesh: DeviceMesh, placements: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: distribute_tensor(tensor, mesh, placements[name]) for name, tensor in tensors.items()}


def empty(mesh: DeviceMesh, placements: dict[str, list[Any]]) -> dict[str, Any]:
    return placed({name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in SHAPES.items()}, mesh, placements)


def check(read: dict[str, DTensor], wanted: dict[str, DTensor]) -> None:
    for name, tensor in wanted.items():
        assert torch.equal(read[name].to_local(), tensor.to_local()), name


def main(url: str, rank: int, count: int) -> None:
    client = Client(url)
    everybody = [(client, f"weights-{i}") for i in range(count)]
    mesh = init_device_mesh("cpu", (count,))
    rows = {"w": [Shard(0)], "b": [Replicate()], "embed": [Shard(0)]}
    columns = {"w": [Shard(1)], "b": [Shard(0)], "embed": [Shard(-1)]}
    held = placed(whole(1), mesh, rows)
    sharding.publish(f"weights-{rank}", held, generation=1, client=client)
    dist.barrier()

    read = empty(mesh, columns)
    assert sharding.read(everybody, "weights", read, generation=1) == "1"
    check(read, {name: tensor.redistribute(mesh, columns[name]) for name, tensor in held.items()})

    # Another number of readers: three of the processes are a mesh of their own.
    fewer = DeviceMesh("cpu", list(range(count - 1)))
    wanted = placed(whole(1), fewer, columns) if rank < count - 1 else {}
    if wanted:
        into = empty(fewer, columns)
        sharding.read(everybody, "weights", into)
        check(into, wanted)

    # Two dimensions, and readers that are there before the next generation is.
    square = init_device_mesh("cpu", (2, count // 2))
    both = {"w": [Shard(0), Shard(1)], "b": [Replicate(), Replicate()], "embed": [Shard(1), Shard(1)]}
    second, read, wanted = placed(whole(2), square, both), empty(mesh, rows), placed(whole(2), mesh, rows)
    if rank == 0:
        time.sleep(1)  # the others wait for its parts
    sharding.publish(f"weights-{rank}", second, generation=2, client=client)
    assert sharding.read(everybody, "weights", read, generation=2) == "2"
    check(read, wanted)
    dist.barrier()


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2], RANK=sys.argv[3], WORLD_SIZE=sys.argv[4])
    dist.init_process_group("gloo")
    main(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]))
    dist.destroy_process_group()
