"""Tensor operations in the server. The results of some are the arguments of others.

python -m shared_tensor.server remote_execution:provider
python remote_execution.py
"""

import torch
from shared_tensor.async_provider import AsyncSharedTensorProvider

provider = AsyncSharedTensorProvider()


@provider.share(name="demo_create_tensor", wait=True)
def demo_create_tensor(shape, value=1.0, device="cpu"):
    return torch.full(shape, value, device=device)


@provider.share(name="demo_add_tensors", wait=True)
def demo_add_tensors(a, b):
    return a + b


@provider.share(name="demo_matrix_multiply", wait=True)
def demo_matrix_multiply(a, b):
    return torch.matmul(a, b)


@provider.share(name="demo_computation", wait=True)
def demo_computation(size=1000):
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    matrix = torch.eye(size, device=device) * 2
    product = torch.matmul(matrix, matrix)
    return {"device": str(product.device), "shape": list(product.shape), "trace": product.trace().item()}


def main():
    total = demo_add_tensors(demo_create_tensor((3, 3), 2.0), demo_create_tensor((3, 3), 3.0))
    print("all 5:", torch.equal(total, torch.full((3, 3), 5.0)))

    product = demo_matrix_multiply(demo_create_tensor((4, 3), 1.0), demo_create_tensor((3, 2), 2.0))
    print("all 6:", torch.equal(product, torch.full((4, 2), 6.0)))

    print("computed:", demo_computation(size=100))

    task_id = demo_add_tensors.submit_async(total, total)
    print("all 10:", torch.equal(provider.wait_for_task(task_id, timeout=60), total * 2))


if __name__ == "__main__":
    main()
