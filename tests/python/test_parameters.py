"""Arguments and type hints: how they are checked, what they become, and whose names are asked for."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import functions
import numpy
import pytest
from ports import free_port

import shared_tensor
from shared_tensor import errors
from shared_tensor.async_client import AsyncClient


@dataclasses.dataclass
class Sample:
    data: Any
    raw: shared_tensor.Tensor


def test_tensors_inside_tuples_and_dataclasses_have_the_framework() -> None:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")

    @provider.share(framework="numpy")
    def kinds(pair: tuple, sample: Sample) -> tuple:  # type: ignore[type-arg]
        return type(pair[0]).__name__, type(sample.data).__name__, type(sample.raw).__name__, pair[0]

    array = numpy.ones(1)
    with shared_tensor.Client(provider.start(0), framework="numpy") as client:
        answer = client.function(kinds)((array,), Sample(array, array))  # type: ignore[arg-type]
        assert answer[:3] == ("ndarray", "ndarray", "Tensor") and isinstance(answer[3], numpy.ndarray)
    provider.stop()


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


def test_hints_of_less_common_types() -> None:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")

    @provider.share()
    def depth(tree: Tree) -> int:
        return 1 + max((depth(child) for child in tree.children), default=0)

    @provider.share()
    def others(mode: Literal[functions.Mode.FAST], x: numpy.float32, n: numpy.int8, ids: frozenset[int]) -> list[str]:
        return [repr(mode), type(x).__name__, type(n).__name__, type(ids).__name__]

    with shared_tensor.Client(provider.start(0)) as client:
        assert client.depth(Tree(1, [Tree(2), Tree(3, [Tree(4)])])) == 3
        with pytest.raises(errors.InvalidParams, match=r"tree\.children\[0\]\.value: expected integer"):
            client.depth({"value": 1, "children": [{"value": "a"}]})
        answer = client.others(functions.Mode.FAST, numpy.float32(1.5), 3, {1, 2})
        assert answer == [repr(functions.Mode.FAST), "float32", "int8", "frozenset"]
        with pytest.raises(errors.InvalidParams, match="expected one of 'fast'"):
            client.others("exact", 1.5, 3, [])
        with pytest.raises(errors.InvalidParams, match="n: expected int8, got 300"):
            client.others("fast", 1.5, 300, [])
    provider.stop()


def served(port: int, function: Callable[..., Any]) -> shared_tensor.SharedTensorProvider:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")
    provider.register("scale", function)
    provider.start(port)
    return provider


def test_the_parameters_of_a_function_are_asked_for_again_when_it_has_others() -> None:
    port = free_port()

    async def call_from_asyncio() -> Any:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(errors.MethodNotFound):
                await client.call("nothing", 2, factor=3)
            return await client.call("scale", 2, factor=3)

    first = shared_tensor.SharedTensorProvider(0, execution_mode="server")
    first.register("other", len)
    first.start(port)
    with shared_tensor.Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(errors.MethodNotFound):
            client.call("scale", 2, factor=3)
        first.stop()
        second = served(port, lambda x, factor: x * factor)
        assert client.call("scale", 2, factor=3) == 6
        assert asyncio.run(call_from_asyncio()) == 6
        second.stop()
        third = served(port, lambda first, second, factor: (first + second) * factor)
        assert client.call("scale", 2, 3, factor=4) == 20
        third.stop()
        fourth = served(port, lambda x, y, factor: (x + y) * factor)
        with pytest.raises(errors.InvalidParams):
            client.call("scale", 2, 3, factor=4)
        assert client.call("scale", 2, 3, factor=4) == 20
        fourth.stop()


def test_a_client_that_asks_for_parameters_does_not_delay_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with shared_tensor.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=60) as client:
            first = threading.Thread(target=pytest.raises, args=(errors.RpcError, client.add, 1), kwargs={"b": 2})
            first.start()
            time.sleep(0.2)
            begin = time.monotonic()
            with pytest.raises(errors.RpcError):
                client.options(timeout=0.5).call("add", 1, b=2)
            assert time.monotonic() - begin < 20
        first.join()


@pytest.mark.parametrize(
    ("call", "parameter", "expected"),
    [
        (lambda c: c.add("x"), "a", "number"),
        (lambda c: c.add(True), "a", "number"),
        (lambda c: c.add(), "a", "a value"),
        (lambda c: c.area({"width": 1}), "box.height", "a value"),
        (lambda c: c.area({"width": 1, "height": 2, "depth": 3}), "box.depth", "no such member"),
        (lambda c: c.area({"width": 1, "height": 2}, mode="slow"), "mode", "one of 'fast', 'exact'"),
        (lambda c: c.typed(1.5, "", "", [1, "a"]), "whole", "integer"),
        (lambda c: c.typed(1, "", "?", [1, "a"]), "raw", "base64 text"),
        (lambda c: c.typed(1, "", "", [1]), "pair", "array of 2"),
        (lambda c: c.typed(1, "", "", [1, 2]), r"pair\[1\]", "string"),
        (lambda c: c.typed(1, "", "", [1, "a"], "x"), "maybe", "integer or null"),
        (lambda c: c.typed(1, "", "", [1, "a"], None, {"kind": "c"}), "options.kind", "one of 'a', 'b'"),
        (lambda c: c.scale(1.0), "x", "tensor"),
        (lambda c: c.use(1, [1.0]), "model", "a handle of a Model"),
    ],
)
def test_arguments_are_checked_before_the_call(
    client: shared_tensor.Client, call: Callable[[shared_tensor.Client], Any], parameter: str, expected: str
) -> None:
    with pytest.raises(errors.InvalidParams, match=f"parameter {parameter}: expected {expected}") as raised:
        call(client)
    assert raised.value.code == -32602


def test_arguments_become_what_the_type_hints_say(client: shared_tensor.Client) -> None:
    assert client.area({"width": 2, "height": 3}, mode="exact") == {
        "area": 6.0,
        "mode": "exact",
        "box": {"width": 2.0, "height": 3.0, "label": ""},
    }
    assert client.typed(2.0, "t", b"abc", (1, "a"), options={"rounds": 3}) == [
        "2",
        "'t'",
        "b'abc'",
        "(1, 'a')",
        "None",
        "{'rounds': 3}",
    ]
