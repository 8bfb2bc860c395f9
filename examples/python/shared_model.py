"""Two processes use one model, and its weights are in memory once:

shared-tensor-server &
python examples/python/shared_model.py
"""

import multiprocessing
import pathlib
import re
import sys
from multiprocessing.synchronize import Barrier

import torch
from shared_tensor import attach, publish


def make_model() -> torch.nn.Module:
    """A model with weights of 192 MiB."""
    return torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(12)))


def memory_mib() -> float:
    """The memory of this process. Memory that n processes share counts as one n-th in each of them (PSS)."""
    text = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Pss: +(\d+)", text, re.MULTILINE))) / 1024


def work(number: int, together: Barrier) -> None:
    with torch.device("meta"):  # parameters without memory
        model = make_model()
    torch.nn.Linear(8, 8)(torch.ones(1, 8))  # torch starts its threads
    before = memory_mib()

    attached = attach(model, "model")
    output = model(torch.ones(1, 2048)).sum().item()

    together.wait()  # both processes have read all weights
    added = memory_mib() - before
    together.wait()  # both processes have measured
    sys.stdout.write(f"process {number}: version {attached.version}, output {output:.6f}, {added:.0f} MiB added\n")


if __name__ == "__main__":
    model = make_model()
    published = publish("model", model.state_dict())
    output = model(torch.ones(1, 2048)).sum().item()
    print(f"published: version {published.version}, output {output:.6f}, {published.bytes / 2**20:.0f} MiB", flush=True)
    del model

    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(2)
    processes = [spawn.Process(target=work, args=(number, together)) for number in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    raise SystemExit(any(process.exitcode for process in processes))
