"""Tensors that a function in another process makes and computes with.

python -m shared_tensor.server create_tensor:provider
python create_tensor.py
"""

import sys

import torch
from shared_tensor.client import SharedTensorClient
from shared_tensor.provider import SharedTensorProvider

provider = SharedTensorProvider()


@provider.share(name="create_tensor")
def create_tensor(shape, device="cpu"):
    return torch.zeros(shape, device=device)


@provider.share(name="scale_and_add")
def scale_and_add(x, y, factor=1.0):
    return x * factor + y


def main(port=2537):
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    with SharedTensorClient(server_port=port) as client:
        tensor = client.call_function("create_tensor", [(3, 4)], {"device": device})
        print("shape:", tuple(tensor.shape), "sum:", tensor.sum().item())

    ones = torch.ones(3, 4)
    result = scale_and_add(ones, ones, factor=4.0)
    print("all 5:", torch.equal(result, torch.full((3, 4), 5.0)))

    tensor.add_(1)  # the tensor is this process's own: the server does not see the change
    print("sum:", tensor.sum().item())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
