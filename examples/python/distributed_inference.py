"""A batch that is divided among several servers, one for each GPU.

    GPUS_PER_NODE=2 python -m shared_tensor.server distributed_inference:provider     # ports 2537 and 2538
    python distributed_inference.py 2537 2538

Instead, each server can be started with its own RANK, also by torchrun:

    torchrun --nproc_per_node=2 -m shared_tensor.server distributed_inference:provider
"""

import os
import sys

import torch
import torch.nn as nn
from shared_tensor.async_client import AsyncSharedTensorClient
from shared_tensor.provider import SharedTensorProvider

gpu_rank = int(os.getenv("RANK", 0))
provider = SharedTensorProvider(server_port=2537 + gpu_rank)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


@provider.share(name="create_model", singleton=True)
def create_model():
    return make_model()


@provider.share(name="distributed_inference")
def distributed_inference(model, data, device_id):
    device = f"cuda:{device_id}" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    data = data.to(device)
    with torch.no_grad():
        return model(data).cpu()


@provider.share(name="rank")
def rank():
    return gpu_rank


def main(ports):
    clients = [AsyncSharedTensorClient(server_port=port) for port in ports]
    data = torch.randn(10, 16)
    parts = data.chunk(len(clients))

    tasks = []  # all servers work at the same time
    for device_id, (client, part) in enumerate(zip(clients, parts, strict=True)):
        model = client.execute_function_async("create_model")
        tasks.append(client.submit_task("distributed_inference", [model, part, device_id]))
    results = [client.get_task_result(task) for client, task in zip(clients, tasks, strict=True)]

    print("ranks:", [client.execute_function_async("rank") for client in clients])
    output = torch.cat(results)
    with torch.no_grad():
        print("shape:", tuple(output.shape), "as on one device:", torch.allclose(output, make_model()(data), atol=1e-6))


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]] or [2537, 2538])
