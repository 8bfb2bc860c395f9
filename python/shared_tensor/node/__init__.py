"""A server and a client in one process: publishes tensors, pulls tensors from other nodes, and pushes tensors to them.

    async with Node() as node:
        await node.publish("weights", model.state_dict())
        theirs = await node.pull("http://other:2537", "weights")
        await node.push("http://other:2537", "batch", x)      # into the inbox of the other node
        message = await node.receive(timeout=1)               # None if nothing came

PyTensorNode and PyTensorData have the API that users of tensor_iroh know.
"""

from ..named_tensors import NamedTensor, Published
from .node import Node, NodeMessage, NodeStatistics
from .tensor_iroh import PyTensorData, PyTensorNode, ReceivedTensor

__all__ = [
    "NamedTensor",
    "Node",
    "NodeMessage",
    "NodeStatistics",
    "Published",
    "PyTensorData",
    "PyTensorNode",
    "ReceivedTensor",
]
