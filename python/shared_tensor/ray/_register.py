"""Registers the tensor transport. Older versions of Ray have no interface for it."""

from __future__ import annotations


def register_tensor_transport() -> None:
    """Registers the tensor transport "shared_tensor" for tensors of torch. Call it before the actors are made, in the
    process that makes them:

        shared_tensor.ray.register_tensor_transport()

        @ray.remote(enable_tensor_transport=True)
        class Trainer:
            @ray.method(tensor_transport="shared_tensor")
            def weights(self): ...

    Ray then passes the tensors of torch in results past its object store: see `ray.experimental`, whose interface is
    not stable (tried with Ray 2.60)."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from ray.experimental import register_tensor_transport as register

    from ._transport import NAME, SharedTensorTransport

    register(NAME, ["cpu", "cuda"], SharedTensorTransport, torch.Tensor)
