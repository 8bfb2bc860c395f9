"""Tensors that a process publishes in a server under a name, and that other processes read without a copy.

    publish("weights", model.state_dict())                   # in one process
    weights = NamedTensors().get("weights")                  # in another
    weights["layer.0.weight"], weights.version

A set of tensors is published in one step, under one version. What a process has read stays as it was, also after newer
versions; its memory is given back with the last tensor. What a reader writes to its tensors is its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from . import _convert, _core
from .client import Client

Progress = bool | Callable[[int, int], Any]
"""True for a progress bar, or a function that is called with the bytes that arrived and the size."""


def _reporter(progress: Progress, name: str) -> AbstractContextManager[Callable[[int, int], Any] | None]:
    if not isinstance(progress, bool):
        return nullcontext(progress)
    if not progress:
        return nullcontext(None)
    from ._show import TransferBar

    return TransferBar(name)


@dataclass(frozen=True)
class Published:
    """The result of a publication."""

    name: str
    version: int
    bytes: int
    """Memory that the server holds for it."""
    copied: int = field(default=0, compare=False)
    """Bytes that this process and the server copied; not those that crossed a network."""
    transport: str = field(default="", compare=False)
    """How the bytes reached the server: "shm", "cuda_ipc", "body", "base64" or "data"; "upload" to another host and
    of later versions."""


@dataclass(frozen=True)
class NamedTensorInfo:
    """What the server has under a name."""

    name: str
    owner: str
    """The user or token that published it: "uid:1000", "token:NAME"."""
    version: int
    bytes: int
    """Memory that the server holds for it."""
    members: int | None
    """Number of tensors of a set; None for a single tensor."""
    dtype: str | None
    """None for a set."""
    shape: tuple[int, ...] | None
    """None for a set."""
    published_at: str
    """ISO 8601, in UTC."""


def reject_surrogates(names: Iterable[str]) -> None:
    """Raises ValueError for a name that UTF-8 cannot encode."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name {name!r} is not valid Unicode: it has half of a surrogate pair") from None


def tensors_of(name: str, value: Any) -> Any:
    """A tensor, or a dict of tensors. Raises TypeError for anything else, and ValueError for a name that is not valid
    Unicode."""
    reject_surrogates([name])
    if not isinstance(value, Mapping):
        if not hasattr(value, "__dlpack__"):
            cure = "publish its state_dict()" if hasattr(value, "state_dict") else "give a tensor, or a dict of tensors"
            raise TypeError(f"{name}: a {type(value).__name__} is no tensor: {cure}")
        return value
    wrong = [str(key) for key, tensor in value.items() if not hasattr(tensor, "__dlpack__")]
    if wrong:
        raise TypeError(f"{name}: these members are not tensors: {', '.join(wrong)}")
    names = [repr(key) for key in value if not isinstance(key, str)]
    if names:
        raise TypeError(f"{name}: names of members must be str, not {', '.join(names)}")
    reject_surrogates(value)
    empty = [key for key, tensor in value.items() if getattr(tensor, "is_meta", False)]
    if empty:
        raise TypeError(f"{name}: these members are on the device meta and have no elements: {', '.join(empty)}")
    return dict(value)


class NamedTensor(Mapping[str, Any]):
    """One version of a set of tensors, as it was read: a mapping of names to tensors of the client's framework. Of a
    single tensor, `tensor` is the tensor, and the mapping is empty. Made by NamedTensors.get().

    It keeps the memory of this version, and so does each of its tensors. Tensors are made when they are first asked
    for. One thread at a time."""

    def __init__(self, core: _core.NamedTensor, convert: Any) -> None:
        self._core = core
        self._convert = convert
        self._names = core.names()
        self._read: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The published name."""
        return self._core.name

    @property
    def version(self) -> int:
        """1 for the first publication of the name, then one more for each."""
        return self._core.version

    @property
    def metadata(self) -> dict[str, str]:
        """The texts that the publisher gave."""
        return self._core.metadata

    @property
    def tensor(self) -> Any:
        """The tensor, if the name has a single one. Raises TypeError for a set."""
        if self._core.is_set:
            raise TypeError(
                f"{self.name} is a set of {len(self)} tensors: take them by their names, like {self._some()}"
            )
        return self._made(self._core.tensor())

    def _made(self, tensor: _core.Tensor) -> Any:
        return tensor if self._convert is None else self._convert(tensor)

    def _some(self) -> str:
        return repr(self._names[0]) if self._names else "a dict's"

    def __getitem__(self, member: str) -> Any:
        if member not in self._read:
            if not self._core.is_set:
                raise KeyError(f"{self.name} is a single tensor: use .tensor")
            if member not in self._names:
                raise KeyError(member)
            self._read[member] = self._made(self._core.member(member))
        return self._read[member]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file. A single tensor becomes a member with its own name. Blocks. Raises
        RuntimeError if the file cannot be written."""
        self._core.save(os.fspath(path))

    def __repr__(self) -> str:
        what = f"{len(self)} tensors" if self._core.is_set else repr(self._core.tensor())
        return f"<NamedTensor {self.name} version {self.version}: {what}>"


class NamedTensors:
    """The named tensors of the client's user or token in its server. Any thread may use it.

    On this host tensors cross through shared memory; to other hosts in parallel parts over several connections, and
    what is lost or damaged is sent again. Each method blocks until it is done, at most the client's `timeout`.

    progress of a method: True shows a progress bar of a transfer to or from another host, where tqdm is installed. A
    function is called with the bytes that have arrived and with the size, on threads of the transfer, by one at a time;
    what it raises ends the transfer. On this host nothing is transferred, and the function is not called.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or Client()
        self._core = _core.NamedTensors(self._client._core)
        self._remote: bool | None = None

    def _is_remote(self) -> bool:
        if self._remote is None:
            self._remote = self._client.transports()["shm"] is not None
        return self._remote

    def publish(
        self,
        name: str,
        tensors: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        if_version: int | None = None,
        base: int | None = None,
        version: int | None = None,
        progress: Progress = False,
    ) -> Published:
        """Publishes a tensor, or a mapping of names to tensors in one step. The tensors may be changed afterwards.

        On the server's host they are copied once; later versions of 8 MiB or more are uploaded into memory of older
        versions. Not copied: tensors of empty_set(), all in one publication, and a
        tensor of Client.empty(), of 1 MiB or more. The server keeps this memory; from then on changes of the tensors
        stay in this process and cost a copy of the changed pages. `copied` of the result says what was copied.

        metadata: short texts for readers. if_version: publish only if this is the current version (0: the name does not
        exist); else InvalidParams is raised. base: the tensors are those that differ from this version, which must be
        the current one, or are new; the other members and the other metadata stay as they are in this version, and
        nothing is copied of them. version: publish under this version and not the next one, so that copies on several
        servers have the same; it must be above the current one, else InvalidParams is raised. Raises TypeError for
        members that are no tensors, ValueError for a name that is not valid Unicode, and ServerOutOfMemory.
        """
        content = tensors_of(name, tensors)
        with _reporter(progress, name) as report:
            made = self._core.publish(
                name, content, dict(metadata or {}), if_version, base, version, self._is_remote(), report
            )
        return Published(*made)

    def empty_set(self, forms: Mapping[str, Any]) -> dict[str, Any]:
        """Makes uninitialised tensors in one piece of memory that this process shares with the server: publish() of all
        of them copies nothing. Make new ones for each version.

        forms: for each name (shape, dtype), or anything with `shape` and `dtype`, like a tensor or the parameters of a
        model on torch's device "meta". They have the client's framework: see Client.empty(). Raises ValueError for an
        unknown dtype, or a name that is not valid Unicode. Without shared memory they lie in ordinary memory."""
        reject_surrogates(forms)
        wanted = []
        for name, form in forms.items():
            shape, dtype = form if isinstance(form, tuple) else (form.shape, form.dtype)
            wanted.append((name, _convert.dtype_name(dtype), [int(size) for size in shape]))
        convert = _convert.converter(self._client._options.framework)
        made = self._core.empty_set(wanted)
        return {name: tensor if convert is None else convert(tensor) for name, tensor in made.items()}

    def publish_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        metadata: Mapping[str, str] | None = None,
        if_version: int | None = None,
        base: int | None = None,
        version: int | None = None,
        progress: Progress = False,
    ) -> Published:
        """Publishes a safetensors file as a set, with its metadata. The file is read once, into the server's memory.
        Raises RuntimeError if the file cannot be read, and what publish() raises."""
        file = os.fspath(path)
        with _reporter(progress, name) as report:
            made = self._core.publish_file(
                name, file, dict(metadata or {}), if_version, base, version, self._is_remote(), report
            )
        return Published(*made)

    def get(
        self,
        name: str,
        *,
        version: int | None = None,
        members: list[str] | None = None,
        previous: NamedTensor | None = None,
        swarm: bool = False,
        shared_with: Client | None = None,
        progress: Progress = False,
    ) -> NamedTensor:
        """Reads `name`, or `set/member` for one tensor of a set. `members`: only these of a set. `previous`: any
        version that was read before. Tensors of a set that did not change since, and to which this process did not
        write, are then taken from there: on this host they lie in the same memory, which is not mapped again. From
        another host only blocks of 64 KiB that differ are fetched; what the process has now is compared. `swarm`: from
        another host, processes that get the same version at the same time pass it on to each other; this process then
        listens at a port that the kernel chooses. `shared_with`: the client of a server on this host; the tensors then
        lie in memory that is shared with it, and publish() of all of them by this client copies nothing. Raises
        ValueError for `previous` together with `version` or `members`, and for `members` together with `swarm` or
        `shared_with`; UnknownOrExpired if the name does not exist, or if `version` is not its current version."""
        if previous is not None and (version is not None or members is not None):
            raise ValueError("previous is for all members of the current version: leave out version and members")
        if members is not None and (swarm or shared_with is not None):
            raise ValueError("swarm and shared_with are for all members: leave out members")
        with _reporter(progress, name) as report:
            known = previous._core if previous is not None else None
            near = shared_with._core if shared_with is not None else None
            core = self._core.get(name, version, members, known, swarm, near, self._is_remote(), report)
        return NamedTensor(core, _convert.converter(self._client._options.framework))

    def watch(self, name: str, after: int = 0, timeout: float = 30.0) -> int | None:
        """Blocks until the name has another version than `after` (0: until it exists), and returns that version.
        Returns None after `timeout` seconds. Raises UnknownOrExpired if `after` is not 0 and the name is removed."""
        return self._core.watch(name, after, timeout)

    def list(self, prefix: str = "") -> list[NamedTensorInfo]:
        """The names that begin with `prefix`, in alphabetical order."""
        return [NamedTensorInfo(**fields) for fields in self._core.list(prefix)]

    def remove(self, name: str) -> bool:
        """Removes a name. Returns False if it does not exist. Tensors that were read before stay valid."""
        return self._core.remove(name)

    def __repr__(self) -> str:
        return f"<NamedTensors of {self._client.url}>"


def publish(name: str, tensors: Any, *, client: Client | None = None, **options: Any) -> Published:
    """NamedTensors(client).publish(name, tensors): `client` is None for the server at SHARED_TENSOR_URL. Blocks until
    readers can get the new version."""
    return NamedTensors(client).publish(name, tensors, **options)


__all__ = ["NamedTensor", "NamedTensorInfo", "NamedTensors", "Published", "publish"]
