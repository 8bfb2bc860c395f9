"""Shares functions, models and tensors between processes.

    client = shared_tensor.Client()
    y = client.scale(x, factor=2)          # x: a tensor of torch, NumPy, JAX or any other framework with DLPack

The classes for asyncio, for servers of tensors and for nodes are in modules of their own, imported when they are used.
"""

import typing

from . import errors
from ._core import Context, NamedReference, Object, Tensor, ref
from ._core import version as __version__
from .client import Client, SharedTensorClient
from .errors import RpcError, SharedTensorError
from .handles import Batch, Stream, Task
from .named_tensors import NamedTensor, NamedTensors, publish
from .provider import SharedTensorProvider
from .records import Receipt, Retry, TaskStatus, WorkerProcess
from .weights import attach

if typing.TYPE_CHECKING:
    from .async_client import AsyncSharedTensorClient
    from .async_provider import AsyncSharedTensorProvider
    from .async_task import TaskInfo
    from .server import SharedTensorServer

__all__ = [
    "AsyncSharedTensorClient",
    "AsyncSharedTensorProvider",
    "Batch",
    "Client",
    "Context",
    "NamedReference",
    "NamedTensor",
    "NamedTensors",
    "Object",
    "Receipt",
    "Retry",
    "RpcError",
    "SharedTensorClient",
    "SharedTensorError",
    "SharedTensorProvider",
    "SharedTensorServer",
    "Stream",
    "Task",
    "TaskInfo",
    "TaskStatus",
    "Tensor",
    "WorkerProcess",
    "__version__",
    "attach",
    "errors",
    "publish",
    "ref",
]

# Names of shared-tensor 0.1, imported when they are used, so that other programs do not pay for them.
_LATER = {
    "AsyncSharedTensorClient": "async_client",
    "AsyncSharedTensorProvider": "async_provider",
    "SharedTensorServer": "server",
    "TaskInfo": "async_task",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'shared_tensor' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"shared_tensor.{_LATER[name]}"), name)
