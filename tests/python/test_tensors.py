"""Tensors of each framework as arguments and results of another process's functions: values, dtypes, shapes, copies."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import shared_tensor
from shared_tensor import errors

INTEGERS = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
NUMPY = [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed in this environment")


def of_numpy(dtype: str) -> Any:
    return numpy.array([[0, 1, 2], [3, 4, 1]]).astype(getattr(numpy, dtype + ("_" if dtype == "bool" else "")))


def of_ml_dtypes(dtype: str) -> Any:
    kind = getattr(library("ml_dtypes"), dtype, None)
    if kind is None:
        pytest.skip(f"this ml_dtypes has no {dtype}")
    return numpy.array([[1, 1, 2], [1, 4, 1]]).astype(kind)


def of_torch(dtype: str) -> Any:
    torch = library("torch")
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    return torch.tensor([[0, 1, 2], [3, 4, 1]]).to(getattr(torch, dtype))


def of_jax(dtype: str) -> Any:
    jax = library("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.array([[0, 1, 2], [3, 4, 1]]).astype(dtype)


def bits(tensor: Any) -> bytes:
    if type(tensor).__module__.startswith("torch"):
        torch = library("torch")
        return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return numpy.asarray(tensor).tobytes()


@pytest.mark.parametrize(
    ("make", "dtype"),
    [(of_numpy, dtype) for dtype in NUMPY]
    + [(of_ml_dtypes, dtype) for dtype in ["bfloat16", *FLOAT8]]
    + [(of_torch, dtype) for dtype in [*NUMPY, "bfloat16", "complex32", *FLOAT8]]
    + [(of_jax, dtype) for dtype in [*NUMPY, "bfloat16"]],
    ids=lambda value: value if isinstance(value, str) else value.__name__[3:],
)
def test_each_dtype_of_each_framework_crosses_and_comes_back(
    client: shared_tensor.Client, make: Callable[[str], Any], dtype: str
) -> None:
    tensor = make(dtype)
    back = client.send_back(tensor)
    assert isinstance(back, type(tensor)), "results are in the framework of the arguments"
    assert back.dtype == tensor.dtype and tuple(back.shape) == (2, 3) and bits(back) == bits(tensor)
    assert client.describe(tensor)[2] == dtype


@pytest.mark.parametrize(
    "make",
    [
        lambda: numpy.array(1.5, numpy.float32),
        lambda: numpy.zeros((0, 3), numpy.float32),
        lambda: numpy.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        lambda: numpy.arange(24)[::5],
        lambda: numpy.broadcast_to(numpy.arange(3), (4, 3)),
        lambda: numpy.arange(6, dtype=">i4"),
        lambda: numpy.frombuffer(b"abcd", numpy.uint8),
        lambda: numpy.broadcast_to(numpy.float32(1), (0, 3)),
        lambda: numpy.arange(1 << 20, dtype=numpy.float32).reshape(1024, 1024)[:, ::2],
    ],
    ids=[
        "no dimension",
        "no element",
        "transposed",
        "gaps",
        "broadcast",
        "big endian",
        "read-only",
        "read-only, no element",
        "large with gaps",
    ],
)
def test_each_layout_crosses(client: shared_tensor.Client, make: Callable[[], Any]) -> None:
    array = make()
    back = client.send_back(array)
    assert back.shape == array.shape and numpy.array_equal(back, array)


def test_negative_strides_are_rejected_with_the_cure(client: shared_tensor.Client) -> None:
    with pytest.raises(ValueError, match="make a contiguous copy"):
        client.send_back(numpy.arange(4)[::-1])
    with pytest.raises(TypeError, match="cannot cross"):
        client.send_back(numpy.array(["a"]))


def test_values_of_numpy_that_would_lose_something_are_rejected(client: shared_tensor.Client) -> None:
    for value in (numpy.longdouble(1.5), numpy.datetime64("2020-01-01", "ns"), numpy.timedelta64("NaT")):
        with pytest.raises(TypeError, match=f"{type(value).__name__} cannot be an argument: pass numbers"):
            client.echo(value)
    with pytest.raises(TypeError, match=r"pass array\.filled"):
        client.send_back(numpy.ma.masked_array([1.0, 2.0], [True, False]))


def test_a_dtype_that_numpy_lacks_needs_ml_dtypes_or_another_framework(
    client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = client.options(framework="none").send_back(numpy.array([1, 2], numpy.uint16)).view("bfloat16")
    monkeypatch.setitem(importlib.import_module("sys").modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="install ml_dtypes"):
        client.options(framework="numpy").send_back(tensor)
    assert client.describe(tensor)[2] == "bfloat16"


def test_a_large_argument_and_result_cross_through_shared_memory(client: shared_tensor.Client) -> None:
    receipts = client.options(receipt=True, framework="numpy")
    array = numpy.arange(1 << 20, dtype=numpy.float32)
    assert numpy.array_equal(receipts.scale(array, 3.0), array * 3)
    assert receipts.last_receipt is not None
    assert [(name, count) for name, count, _ in receipts.last_receipt.transports] == [("shm", 2)]

    shared = receipts.empty((1 << 20,), "float32")
    shared[:] = array
    copied = receipts.last_receipt.bytes_copied
    receipts.scale(shared, 3.0)
    assert receipts.last_receipt.bytes_copied == copied - array.nbytes, "memory of empty() is not copied"


def test_memory_of_the_context_is_returned_without_a_copy(client: shared_tensor.Client) -> None:
    receipts = client.options(receipt=True, framework="numpy")
    for _ in range(2):
        ones = receipts.kept_ones(1 << 20)
        assert ones.sum() == 1 << 20
        assert receipts.last_receipt is not None and receipts.last_receipt.transports == [("shm", 1, 0)]
        ones[:] = 2  # the caller's own
    assert receipts.empty([2], numpy.int64).dtype == numpy.int64


def test_a_result_is_writable_and_nobody_else_sees_it(client: shared_tensor.Client) -> None:
    array = numpy.arange(1 << 16, dtype=numpy.float32)
    first, second = client.send_back(array), client.send_back(array)
    first[:] = -1
    assert numpy.array_equal(second, array) and numpy.array_equal(client.send_back(array), array)


def test_a_view_keeps_a_results_memory_and_the_last_one_gives_it_back(client: shared_tensor.Client) -> None:
    def none_held() -> bool:
        gc.collect()
        deadline = time.monotonic() + 10  # leases are released a little later, many at a time
        while client.call("lease.list")["leases"] and time.monotonic() < deadline:
            time.sleep(0.01)
        return not client.call("lease.list")["leases"]

    assert none_held()
    array = client.scale(numpy.ones(1 << 20, numpy.float32))
    part = array[5:10]
    del array
    gc.collect()
    assert part.tolist() == [2.0] * 5
    assert len(client.call("lease.list")["leases"]) == 1
    del part
    assert none_held()


def test_the_framework_of_results_can_be_chosen(client: shared_tensor.Client) -> None:
    ones = numpy.ones(3)
    assert isinstance(client.options(framework="none").send_back(ones), shared_tensor.Tensor)
    assert client.options(framework=lambda tensor: tensor.shape).send_back(ones) == (3,)
    with pytest.raises(ValueError, match="use 'torch', 'numpy', 'jax'"):
        client.options(framework="tensorflow").send_back(ones)


def test_tensors_inside_containers_and_streams(client: shared_tensor.Client) -> None:
    back = client.send_back({"a": [numpy.ones(2), 1], "b": numpy.zeros(1)})
    assert numpy.array_equal(back["a"][0], numpy.ones(2)) and back["a"][1] == 1
    call = client.options(framework="numpy").stream("doubled")
    with call.writer() as arrays:
        for n in range(3):
            arrays.write(numpy.full(4, n))
    assert [array.tolist() for array in call] == [[0] * 4, [2] * 4, [4] * 4]


def test_a_transport_can_be_required(client: shared_tensor.Client) -> None:
    assert client.transports()["shm"] is None
    with pytest.raises(errors.TransportNotPossible):
        client.options(transport="cuda_ipc").send_back(numpy.ones(3))


def test_torch_tensors_with_history_and_lazy_bits(client: shared_tensor.Client) -> None:
    torch = library("torch")
    weights = torch.ones(3, requires_grad=True)
    assert torch.equal(client.send_back(weights * 2), torch.full((3,), 2.0))
    conjugate = torch.tensor([1 + 2j]).conj()
    assert torch.equal(client.send_back(conjugate), conjugate)
    with pytest.raises(TypeError, match="to_dense"):
        client.send_back(torch.eye(3).to_sparse())
