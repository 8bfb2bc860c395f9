"""Sets of which each process holds a part, read as other parts; beside DTensor's own redistribution."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Process, run_ranks

import shared_tensor
from shared_tensor import errors, sharding


@pytest.fixture(scope="module")
def provider(provider_of_tensors: Process) -> Process:
    return provider_of_tensors


class Mesh:
    """Of one process."""

    shape = (1,)

    def get_coordinate(self) -> list[int]:
        return [0]


class Whole:
    """A DTensor of a mesh of one process, without torch.distributed."""

    device_mesh = Mesh()

    def __init__(self, tensor: Any) -> None:
        from torch.distributed.tensor import Shard

        self.tensor, self.shape, self.ndim, self.dtype = tensor, tensor.shape, tensor.ndim, tensor.dtype
        self.placements = [Shard(0)]

    def to_local(self) -> Any:
        return self.tensor


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

    class Other:
        shape = (2,)

        def get_coordinate(self) -> list[int] | None:
            return None

    with pytest.raises(ValueError, match="2 meshes"):
        sharding.publish("x", {"a": tensor(1, Shard(0)), "b": tensor(2, Shard(0))}, generation=1)
    with pytest.raises(ValueError, match="not in the mesh"):
        sharding.publish("x", {"a": tensor(Other(), Shard(0))}, generation=1)
    with pytest.raises(ValueError, match="redistribute it"):
        sharding._placements("a", tensor(Other(), Partial()))
    with pytest.raises(TypeError, match="generation"):  # the parts of several steps would be mixed
        sharding.publish("x", {"a": tensor(Other(), Shard(0))})  # type: ignore[call-arg]


def test_publishers_that_are_missing_are_named(client: shared_tensor.Client) -> None:
    core = client._core
    wanted: Any = {"a": [None]}
    with pytest.raises(errors.UnknownOrExpired):
        shared_tensor._core.get_sharded([(core, "nobody")], wanted, [1], [0], None, 0.0)
    with pytest.raises(ValueError, match="at least one publisher"):
        shared_tensor._core.get_sharded([], wanted, [1], [0], None, 0.0)


def test_tensors_that_do_not_fit_are_left_as_they_are(client: shared_tensor.Client) -> None:
    torch = pytest.importorskip("torch", minversion="2.5")
    published = {"a": Whole(torch.full((4,), 5.0)), "b": Whole(torch.full((4,), 6.0))}
    sharding.publish("weights", published, generation=1, client=client)
    try:
        for other, text in (
            (torch.zeros(4, 4), r"b: .* the shape \(4,\), and of the tensor to fill \(4, 4\)"),
            (torch.zeros(1), r"\(4,\), and of the tensor to fill \(1,\)"),
            (torch.zeros(4).double(), "float64"),
        ):
            into = {"a": Whole(torch.zeros(4)), "b": Whole(other)}
            with pytest.raises(ValueError, match=text):
                sharding.read([client], "weights", into)
            assert not into["a"].tensor.any() and not other.any()
    finally:
        shared_tensor.NamedTensors(client).remove("weights")


def test_publishers_at_urls_get_the_token_and_no_timeout(
    start_provider: Callable[..., Process], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", minversion="2.5")
    token, made = "0123456789abcdef" * 2, []
    tokens = tmp_path / "tokens"
    tokens.write_text(f"trainer:{token}\n")
    tokens.chmod(0o600)
    url = start_provider("functions:provider", "--token-file", str(tokens)).url
    monkeypatch.setenv("SHARED_TENSOR_URL", url)
    monkeypatch.setenv("SHARED_TENSOR_TOKEN", token)

    class Recorded(shared_tensor.Client):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self._options.timeout)

    monkeypatch.setattr(sharding, "Client", Recorded)
    sharding.publish("weights", {"a": Whole(torch.full((4,), 5.0))}, generation=1)
    into = {"a": Whole(torch.zeros(4))}
    made.clear()
    assert sharding.read([url], "weights", into) == "1"
    assert into["a"].tensor.tolist() == [5.0] * 4 and made == [None]
