"""Sets of tensors of which each process holds a part, and readers that want other parts.

    sharding.publish("weights", {"fc.weight": dtensor}, generation=step)          # each trainer, in its own server
    sharding.read(["http://trainer-0:2537", "http://trainer-1:2537"], "weights", {"fc.weight": other_dtensor})

Layouts are those of PyTorch's DTensor: a mesh of processes, and for each of its dimensions Shard(d) or Replicate().
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from .client import Client
from .errors import UnknownOrExpired
from .named_tensors import Published, reject_surrogates

_Dimensions = list[int | None]


def _placements(name: str, tensor: Any) -> _Dimensions:
    from torch.distributed.tensor import Replicate, Shard  # type: ignore[import-not-found,unused-ignore]

    dimensions: _Dimensions = []
    for placement in tensor.placements:
        if type(placement) is Shard:
            dimensions.append(placement.dim % tensor.ndim)
        elif type(placement) is Replicate:
            dimensions.append(None)
        else:
            raise ValueError(f"{name} has the placement {placement}: redistribute it to Shard or Replicate first")
    return dimensions


def _mesh(tensors: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The sizes of the mesh, and this process's place in it."""
    meshes = {tensor.device_mesh for tensor in tensors.values()}
    if len(meshes) != 1:
        raise ValueError(f"the tensors are on {len(meshes)} meshes: give DTensors of one mesh")
    mesh = meshes.pop()
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError("this process is not in the mesh of the tensors")
    return list(mesh.shape), list(place)


def publish(name: str, tensors: Mapping[str, Any], *, generation: str | int, client: Client | None = None) -> Published:
    """Publishes this process's parts of DTensors as a set, with how they are sharded. Each process of the mesh does so,
    in its own server, or in one server under a name of its own. `generation` names the state that the parts belong to,
    such as the number of a training step: readers take only parts of one generation. Raises ValueError for tensors of
    several meshes or with placements other than Shard and Replicate, and what NamedTensors.publish() raises."""
    mesh, place = _mesh(tensors)
    reject_surrogates([name, *tensors])
    parts = {
        member: (tensor.to_local().detach().contiguous(), list(tensor.shape), _placements(member, tensor))
        for member, tensor in tensors.items()
    }
    return Published(*_core.put_sharded((client or Client())._core, name, parts, mesh, place, str(generation)))


def read(
    publishers: Sequence[Client | str | tuple[Client | str, str]],
    name: str,
    into: Mapping[str, Any],
    *,
    generation: str | int | None = None,
    patience: float = 30.0,
) -> str:
    """Fills this process's parts of the DTensors `into` with what `publishers` have, whatever their layout is, and
    returns the generation. Only the bytes of these parts are moved. A publisher is a client or a URL, or a pair of that
    and its name for the set (else `name`). All publishers must be given unless they hold replicas. URLs get the token
    SHARED_TENSOR_TOKEN and no timeout.

    Blocks until all publishers have one generation (`generation`, if it is given), at most `patience` seconds: then
    raises UnknownOrExpired. Nothing is written to `into` before all parts have arrived and fit. Raises ValueError if
    the publishers lack a part or a tensor, or have another dtype or shape."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    mesh, place = _mesh(into)
    sources = []
    clients = []  # keeps those that are made here
    token = os.environ.get("SHARED_TENSOR_TOKEN")
    for one in publishers:
        where, its_name = one if isinstance(one, tuple) else (one, name)
        clients.append(where if isinstance(where, Client) else Client(where, token, timeout=None))
        sources.append((clients[-1]._core, its_name))
    wanted = {member: _placements(member, tensor) for member, tensor in into.items()}
    end = time.monotonic() + patience
    while True:
        try:
            parts, found, _ = _core.get_sharded(
                sources, wanted, mesh, place, None if generation is None else str(generation), min(patience, 0.2)
            )
            break
        except UnknownOrExpired:  # the wait is short, so that signals are handled
            if time.monotonic() >= end:
                raise
    received = {member: torch.from_dlpack(part) for member, part in parts.items()}
    targets = {member: tensor.to_local() for member, tensor in into.items()}
    for member, target in targets.items():
        part = received[member]
        if part.dtype != target.dtype:
            raise ValueError(f"{member} is published as {part.dtype}, and the tensor is {target.dtype}")
        if part.shape != target.shape:
            raise ValueError(
                f"{member}: this process's part of the published tensor has the shape {tuple(part.shape)}, and of the "
                f"tensor to fill {tuple(target.shape)}"
            )
    with torch.no_grad():
        for member, target in targets.items():
            target.copy_(received[member])
    return found


__all__ = ["publish", "read"]
