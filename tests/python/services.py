"""Compute servers, servers of streams and nodes in processes of their own: `services.py ROLE FILE`. The file gets the
URL."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import numpy

from shared_tensor.compute import (
    AsyncComputeFunction,
    AsyncComputeServer,
    ComputeFunction,
    ComputeServer,
    ModelComputeFunction,
)
from shared_tensor.node import Node
from shared_tensor.streams import TensorServicer


def tell(file: str, url: str) -> None:
    """Nobody sees a part of the file."""
    with open(file + ".part", "w") as part:
        part.write(url)
    os.replace(part.name, file)


class Double(ComputeFunction):
    def compute(self, input_tensor: Any) -> Any:
        if not input_tensor.size:
            raise ValueError("no elements")
        return input_tensor * 2

    def get_info(self) -> dict[str, Any]:
        return {"name": "double", "device": "cpu", "rounds": 1}


class AsyncDouble(AsyncComputeFunction):
    async def compute(self, input_tensor: Any) -> Any:
        await asyncio.sleep(0)
        return input_tensor * 2


def make_model() -> Any:
    """The same model in each process."""
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 16)).eval()


class Halving(TensorServicer):
    def _process_tensor(self, tensor: Any) -> Any:
        if tensor.ndim == 0:
            raise ValueError("a tensor without dimensions")
        return tensor / 2

    def _get_tensor_to_send(self, index: int, parameters: dict[str, Any]) -> Any:
        return numpy.full(parameters.get("shape", [2]), index, numpy.float32)


def serve_compute(function: ComputeFunction, file: str) -> None:
    with ComputeServer(function, port=0, version="7") as server:
        tell(file, server.url)
        server.wait_for_termination()


async def serve_async_compute(file: str) -> None:
    async with AsyncComputeServer(AsyncDouble(), port=0) as server:
        tell(file, server.url)
        await server.wait_for_termination()


async def serve_streams(file: str) -> None:
    tell(file, Halving().start(port=0))
    await asyncio.Event().wait()


async def answer(file: str) -> None:
    """Sends each tensor back. The name of a message is "URL|NAME"."""
    async with Node(framework="none") as node:
        await node.publish("weights", {"w": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)})
        tell(file, node.url)
        while (message := await node.receive()) is not None:
            url, _, name = message.name.partition("|")
            await node.push(url, name, message.tensor)


def main(role: str, file: str) -> None:
    if role == "compute":
        serve_compute(Double(), file)
    elif role == "model":
        serve_compute(ModelComputeFunction(make_model(), "cpu"), file)
    else:
        asyncio.run({"async_compute": serve_async_compute, "streams": serve_streams, "node": answer}[role](file))


if __name__ == "__main__":
    main(*sys.argv[1:])
