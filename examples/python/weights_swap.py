"""A trainer publishes new weights, while two processes call the model all the time. Each call has the weights of one
version:

shared-tensor-server &
python examples/python/weights_swap.py
"""

import multiprocessing
import sys
from multiprocessing.synchronize import Barrier

import torch
from shared_tensor import attach, publish

STEPS = 50


class Model(torch.nn.Module):
    """Returns one number for each layer. All weights of step n are n, so all numbers of one call must be n."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512, bias=False) for _ in range(8))

    def forward(self, x: torch.Tensor) -> list[float]:
        return [layer(x)[0].item() for layer in self.layers]


def publish_step(model: Model, step: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(step)
    publish("weights", model.state_dict())


def read(number: int, started: Barrier) -> None:
    with torch.device("meta"):
        model = Model()
    x = torch.full((512,), 1 / 512)
    calls, mixtures = 0, 0
    steps = set()
    with attach(model, "weights") as attached:
        attached.watch()  # takes each new version between two calls
        while STEPS not in steps:
            numbers = set(model(x))
            calls += 1
            mixtures += len(numbers) > 1
            steps |= numbers
            if calls == 1:
                started.wait()
            if attached.error is not None:
                raise attached.error
    sys.stdout.write(f"reader {number}: {calls} calls, {len(steps)} different steps, {mixtures} mixtures\n")


if __name__ == "__main__":
    model = Model()
    publish_step(model, 1)
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Barrier(3)
    readers = [spawn.Process(target=read, args=(number, started)) for number in (1, 2)]
    for reader in readers:
        reader.start()
    started.wait()  # each reader has called the model with the weights of step 1
    for step in range(2, STEPS + 1):
        publish_step(model, step)
    for reader in readers:
        reader.join()
    raise SystemExit(any(reader.exitcode for reader in readers))
