"""One function or model as a service, with the API that users of splitlearn-comm know.

    server = ComputeServer(ModelComputeFunction(model))
    server.start()
    server.wait_for_termination()

    with ComputeClient("127.0.0.1:50051") as client:     # in another process
        y = client.compute(x)

docs/other_projects.md tells what differs. Tensors cross as with every Client: through shared memory on one host.
"""

from .client import AsyncComputeClient, ComputeClient
from .codecs import CompressedTensorCodec, TensorCodec
from .functions import AsyncComputeFunction, AsyncModelComputeFunction, ComputeFunction, ModelComputeFunction
from .retry import ExponentialBackoff, FixedDelay, RetryStrategy
from .server import AsyncComputeServer, ComputeServer

__all__ = [
    "AsyncComputeClient",
    "AsyncComputeFunction",
    "AsyncComputeServer",
    "AsyncModelComputeFunction",
    "CompressedTensorCodec",
    "ComputeClient",
    "ComputeFunction",
    "ComputeServer",
    "ExponentialBackoff",
    "FixedDelay",
    "ModelComputeFunction",
    "RetryStrategy",
    "TensorCodec",
]
