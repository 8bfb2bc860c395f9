"""Checkpoints of torch.distributed.checkpoint (DCP) as published sets.

    import torch.distributed.checkpoint as dcp

    dcp.save(state, storage_writer=PublishedWriter("step"))
    dcp.load(state, storage_reader=PublishedReader("step"))     # in any process, on any number of ranks

On the server's host saving and loading copy each tensor once. A checkpoint of one process is one set, whose
members are the tensors. Of several ranks, each publishes its part. Readers see a whole checkpoint, also if a process
dies while it saves. Without a keeper a checkpoint ends with the server; it is not written to a disk.

Needs torch 2.3 or newer. Values that are no tensors are pickled by DCP. When they are loaded, only those are accepted
that `torch.load(weights_only=True)` accepts, so that a checkpoint cannot run code.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import traceback
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .client import Client
from .errors import InvalidParams, RpcError, UnknownOrExpired
from .named_tensors import NamedTensor, NamedTensors

_INDEX = ".index"
"""The member that says where the tensors are: JSON."""
_PART_OF = "checkpoint"
"""Metadata of the part of a rank: the name of the checkpoint."""


class _OnServer:
    """The name and the server of a writer or a reader. Without a client of the user it can be pickled, as async_save()
    does to save in another process."""

    def __init__(self, name: str, client: Client | None = None) -> None:
        self._name = name
        self._client = client

    @functools.cached_property
    def _tensors(self) -> NamedTensors:
        return NamedTensors((self._client or Client(timeout=None)).options(framework="torch"))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_tensors"}


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _bytes_of(data: bytes | memoryview) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _key(index: dcp.MetadataIndex) -> str:
    """The member that holds an item."""
    return index.fqn if not index.offset or not any(index.offset) else f"{index.fqn}@{list(index.offset)}"


def _reject_names(items: Iterable[dcp.MetadataIndex]) -> None:
    """Raises ValueError if two members would have the same name."""
    seen: dict[str, str] = {_INDEX: "the index of the checkpoint"}
    for item in items:
        key = _key(item)
        if key in seen:
            raise ValueError(f"PublishedWriter: {item.fqn!r} would be saved as {key!r}, as {seen[key]} is: rename it")
        seen[key] = f"a part of {item.fqn!r}"


class PublishedWriter(_OnServer, StorageWriter):
    """Publishes a checkpoint as `name`. `checkpoint_id` of dcp.save() is another name. All ranks use one server; one
    save of a name at a time. `client`: of that server; None: SHARED_TENSOR_URL, as async_save() needs to save in
    another process. Its errors are those of NamedTensors.publish(), and ValueError for a tensor named ".index", or
    named as a part of another tensor is, such as "w@[1]" beside "w".

    Rank R of several publishes NAME.part-0.R or NAME.part-1.R, in turn: readers find the parts of the save before until
    the set NAME says that the new ones are complete. A server takes the memory of older versions for new ones."""

    def __init__(self, name: str, client: Client | None = None) -> None:
        super().__init__(name, client)
        self._set: dict[str, torch.Tensor] = {}  # of a single rank; published by finish()
        self._slot = 0

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Called by DCP."""
        if checkpoint_id is not None:
            self._name = os.fspath(checkpoint_id)
        self._set = {}

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by DCP."""
        if not kwargs.get("use_collectives", True):
            raise ValueError("PublishedWriter: use_collectives=False is not possible, because one rank must know all")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Called by DCP."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Called by DCP."""
        if not all(plan.usable for plan in plans):
            raise ValueError("PublishedWriter: enable_plan_caching=True is not possible: each save has its own parts")
        self._slot = 1 - self._slot_now()
        if len(plans) == 1:
            return [dataclasses.replace(plans[0], storage_data="")]
        parts = [f"{self._parts()}{rank}" for rank in range(len(plans))]
        return [dataclasses.replace(plan, storage_data=part) for plan, part in zip(plans, parts, strict=True)]

    def _slot_now(self) -> int:
        try:
            return int(_read_index(self._tensors.get(self._name, members=[_INDEX]))["slot"]) % 2
        except (UnknownOrExpired, InvalidParams, *_DAMAGES):  # no checkpoint, or a damaged one
            return 0

    def _parts(self) -> str:
        """How the names of all parts of this save begin."""
        return f"{self._name}.part-{self._slot}."

    def _is_part(self, name: str) -> bool:
        """Whether a set is a part of this checkpoint, and not of a user whose name looks alike."""
        try:
            return self._tensors.get(name, members=[]).metadata.get(_PART_OF) == self._name
        except (UnknownOrExpired, InvalidParams):  # it is gone, or no set
            return False

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Called by DCP."""
        _reject_names(item.index for item in plan.items)
        tensors = {_key(item.index): _tensor_of(planner.resolve_data(item)) for item in plan.items}
        part, version = plan.storage_data, 0
        if part == "":
            self._set = tensors
        elif tensors:
            version = self._tensors.publish(part, tensors, metadata={_PART_OF: self._name}).version
        results = []
        for item in plan.items:
            key = _key(item.index)
            results.append(WriteResult(item.index, tensors[key].nbytes, [part, version, key]))
        return _done(results)

    def finish(self, metadata: dcp.Metadata, results: list[list[WriteResult]]) -> None:
        """Called by DCP on one rank: readers see the checkpoint from now on. Raises TypeError for data of a planner
        that JSON cannot hold."""
        index = {
            "slot": self._slot,
            "items": [[r.index.fqn, r.index.offset, *r.storage_data] for part in results for r in part],
            "values": {fqn: _described(value) for fqn, value in metadata.state_dict_metadata.items()},
            "planner": metadata.planner_data,
        }
        self._tensors.publish(self._name, {**self._set, _INDEX: _bytes_of(json.dumps(index).encode())})
        ranks = 0 if self._set else len(results)
        self._set = {}
        for part in self._tensors.list(self._parts()):  # of an earlier save by more ranks
            rank = part.name.removeprefix(self._parts())
            if rank.isdecimal() and int(rank) >= ranks and self._is_part(part.name):
                self._tensors.remove(part.name)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a name."""
        return "/" not in os.fspath(checkpoint_id)


def _tensor_of(value: torch.Tensor | io.BytesIO) -> torch.Tensor:
    return _bytes_of(value.getbuffer()) if isinstance(value, io.BytesIO) else value.detach().cpu()


def _described(value: Any) -> Any:
    if isinstance(value, dcp.BytesStorageMetadata):
        return None
    chunks = [[list(chunk.offsets), list(chunk.sizes)] for chunk in value.chunks]
    return {"dtype": str(value.properties.dtype).removeprefix("torch."), "size": list(value.size), "chunks": chunks}


def _value_of(described: Any) -> Any:
    if described is None:
        return dcp.BytesStorageMetadata()
    dtype = getattr(torch, described["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{dtype} is no dtype")
    properties = dcp.TensorProperties(dtype=dtype)
    chunks = [dcp.ChunkStorageMetadata(torch.Size(at), torch.Size(size)) for at, size in described["chunks"]]
    return dcp.TensorStorageMetadata(properties, torch.Size(described["size"]), chunks)


_DAMAGES = ValueError, TypeError, LookupError, AttributeError
"""What reading a damaged index raises, beside errors of calls."""


def _read_index(read: NamedTensor) -> dict[str, Any]:
    index: dict[str, Any] = json.loads(bytes(read[_INDEX].numpy()))
    return index


class PublishedReader(_OnServer, StorageReader):
    """Reads the newest checkpoint that was published as `name`. `checkpoint_id` of dcp.load() is another name. From
    another host each rank fetches the members that it needs. `client`: of the server; None: SHARED_TENSOR_URL.
    dcp.load() raises DCP's CheckpointException, which is no Exception, with the reason: there is no such name, it is no
    checkpoint or a damaged one, or a new one was published meanwhile."""

    def __init__(self, name: str, client: Client | None = None) -> None:
        super().__init__(name, client)
        self._version = 0
        self._places: dict[dcp.MetadataIndex, tuple[str, int, str]] = {}  # part, its version, member

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Called by DCP."""
        if checkpoint_id is not None:
            self._name = os.fspath(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
        """Called by DCP."""
        try:
            return self._metadata()
        except (RpcError, *_DAMAGES) as error:  # DCP drops all exceptions but its own
            failure: Exception = error
            if isinstance(error, InvalidParams):  # it has no such member
                failure = ValueError(f"{self._name} is not a checkpoint: save it with PublishedWriter")
            elif not isinstance(error, RpcError):
                failure = ValueError(f"the index of the checkpoint {self._name} is damaged: save it again")
            raise CheckpointException(self._name, {0: (failure, traceback.extract_tb(error.__traceback__))}) from None

    def _metadata(self) -> dcp.Metadata:
        read = self._tensors.get(self._name, members=[_INDEX])
        index = _read_index(read)
        self._version = read.version
        self._places = {
            dcp.MetadataIndex(fqn, offset): (part or self._name, version or read.version, key)
            for fqn, offset, part, version, key in index["items"]
        }
        planner = index["planner"]
        if isinstance(planner, dict):  # of the default planner: the path of each value
            planner = {fqn: tuple(path) if isinstance(path, list) else path for fqn, path in planner.items()}
        return dcp.Metadata({fqn: _value_of(value) for fqn, value in index["values"].items()}, planner_data=planner)

    def set_up_storage_reader(self, metadata: dcp.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by DCP."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Called by DCP."""
        return dataclasses.replace(plan, storage_data=self._version)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Called by DCP."""
        if len({plan.storage_data for plan in plans}) > 1:
            raise ValueError(f"a new checkpoint of {self._name} was published while the ranks began: load again")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Called by DCP."""
        needed: dict[tuple[str, int], set[str]] = {}
        for item in plan.items:
            part, version, key = self._places[item.storage_index]
            needed.setdefault((part, version), set()).add(key)
        parts = {part: self._part(part, version, sorted(keys)) for (part, version), keys in needed.items()}
        for item in plan.items:
            part, _, key = self._places[item.storage_index]
            _load(item, parts[part][key], planner)
        return _done(None)

    def _part(self, part: str, version: int, keys: list[str]) -> NamedTensor:
        read = self._tensors.get(part, members=keys)
        if read.version != version:
            raise UnknownOrExpired(f"a new checkpoint of {self._name} was published meanwhile: load again", code=-32005)
        return read

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it can be a name."""
        return "/" not in os.fspath(checkpoint_id)


def _load(item: ReadItem, tensor: torch.Tensor, planner: LoadPlanner) -> None:
    if item.type == LoadItemType.BYTE_IO:
        data = bytes(tensor.numpy())
        torch.load(io.BytesIO(data), weights_only=True)  # rejects what could run code
        planner.load_bytes(item, io.BytesIO(data))
        return
    for dimension, (first, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        tensor = tensor.narrow(dimension, first, length)
    target = planner.resolve_tensor(item).detach()
    target.copy_(tensor)
    planner.commit_tensor(item, target)


__all__ = ["PublishedReader", "PublishedWriter"]
