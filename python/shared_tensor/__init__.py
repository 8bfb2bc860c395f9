"""Shares functions, models and tensors between processes.

client = shared_tensor.Client()
y = client.scale(x, factor=2)          # x: a tensor of torch, NumPy, JAX or any other framework with DLPack
"""

from . import errors
from ._core import Context, NamedReference, Object, Tensor, ref
from ._core import version as __version__
from .client import Client
from .errors import RpcError, SharedTensorError
from .handles import Batch, Stream, Task
from .named_tensors import NamedTensor, NamedTensors, publish
from .provider import SharedTensorProvider
from .records import Receipt, Retry, TaskStatus
from .weights import attach

__all__ = [
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
    "SharedTensorError",
    "SharedTensorProvider",
    "Stream",
    "Task",
    "TaskStatus",
    "Tensor",
    "__version__",
    "attach",
    "errors",
    "publish",
    "ref",
]
