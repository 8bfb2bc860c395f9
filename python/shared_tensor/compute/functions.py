"""The functions that a compute server runs."""

from __future__ import annotations

import abc
import asyncio
from typing import Any


class ComputeFunction(abc.ABC):
    """A function of one tensor. Calls run on the server's threads, at most `max_workers` of them at once."""

    framework: str | None = None
    """Of the tensors that compute() gets: "torch", "numpy" or "jax"; None: torch if it is imported, else NumPy."""

    @abc.abstractmethod
    def compute(self, input_tensor: Any) -> Any:
        """Returns the result for a tensor. It may be a view of `input_tensor`, which belongs to this call."""

    def get_info(self) -> dict[str, Any]:
        """What clients are told by get_service_info(): "name", "device" and whatever else they may know."""
        return {"name": type(self).__name__}

    def setup(self) -> None:  # noqa: B027
        """Runs before the server starts."""

    def teardown(self) -> None:  # noqa: B027
        """Runs after the server has stopped."""


class AsyncComputeFunction(abc.ABC):
    """A coroutine function of one tensor. It runs in the event loop in which the server was started."""

    framework: str | None = None
    """As in ComputeFunction."""

    @abc.abstractmethod
    async def compute(self, input_tensor: Any) -> Any:
        """Returns the result for a tensor."""

    def get_info(self) -> dict[str, Any]:
        """As in ComputeFunction."""
        return {"name": type(self).__name__}

    async def setup(self) -> None:  # noqa: B027
        """Runs before the server starts."""

    async def teardown(self) -> None:  # noqa: B027
        """Runs after the server has stopped."""


class ModelComputeFunction(ComputeFunction):
    """A torch.nn.Module. It is moved to `device` and set to evaluation; calls run without gradients."""

    framework = "torch"

    def __init__(self, model: Any, device: str | None = None, model_name: str | None = None) -> None:
        """device: "cpu", "cuda" or "cuda:1"; None: "cuda" if torch finds a GPU, else "cpu"."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device).eval()
        self.model_name = model_name or type(model).__name__

    def compute(self, input_tensor: Any) -> Any:
        """Returns the model's result. It is on `device`."""
        import torch

        with torch.no_grad():
            return self.model(input_tensor.to(self.device))

    def get_info(self) -> dict[str, Any]:
        """The model's name and device."""
        return {"name": self.model_name, "device": self.device}


class AsyncModelComputeFunction(AsyncComputeFunction):
    """As ModelComputeFunction. The model runs in a thread, so that the event loop stays free."""

    framework = "torch"

    def __init__(self, model: Any, device: str | None = None, model_name: str | None = None) -> None:
        self._function = ModelComputeFunction(model, device, model_name)

    async def compute(self, input_tensor: Any) -> Any:
        """Returns the model's result. It is on `device`."""
        return await asyncio.to_thread(self._function.compute, input_tensor)

    def get_info(self) -> dict[str, Any]:
        """The model's name and device."""
        return self._function.get_info()
