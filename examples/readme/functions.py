import torch
from shared_tensor import SharedTensorProvider

provider = SharedTensorProvider()


@provider.share()
def project(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Rows of x, projected by w."""
    return x @ w
