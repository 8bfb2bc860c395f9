"""Functions and named tensors in a Ray cluster.

Ray places, restarts, scales and finds processes. Calls and tensors go past it: on one node through shared memory,
between nodes from server to server.

    handle = provider.deploy(replicas=4)            # actors that serve the provider's functions
    handle.embed(texts)                             # by a replica on this node, if there is one

    shared_tensor.ray.publish("policy", weights)    # on one node
    shared_tensor.ray.attach(model, "policy")       # on any node: its processes share one copy

Needs `ray.init()` before (tried with Ray 2.60). All processes of a Ray cluster trust each other: they get one secret
token for its servers.
"""

from ._deployment import delete, deploy, scale
from ._handle import Handle, Replica, handle
from ._names import ClusterNames, attach, client, names, publish, shutdown
from ._register import register_tensor_transport

__all__ = [
    "ClusterNames",
    "Handle",
    "Replica",
    "attach",
    "client",
    "delete",
    "deploy",
    "handle",
    "names",
    "publish",
    "register_tensor_transport",
    "scale",
    "shutdown",
]
