"""A checkpoint of torch.distributed.checkpoint: in a server of this host, beside files in memory (/dev/shm).

    python benchmarks/checkpoint_bench.py [--mib 1024] [--rounds 5]

With a Python that has shared_tensor and torch. The two sides take turns in one run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
import torch.distributed.checkpoint as dcp

import shared_tensor
from shared_tensor.checkpoint import PublishedReader, PublishedWriter

MEMBERS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")
    client = shared_tensor.Client(provider.start(), timeout=None)
    count = options.mib * (1 << 20) // 4 // MEMBERS
    state = {f"m{i:02}": torch.full((count,), float(i)) for i in range(MEMBERS)}
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    times: dict[str, list[float]] = {}

    def timed(title: str, work: Callable[[], object]) -> None:
        begin = time.perf_counter()
        work()
        times.setdefault(title, []).append((time.perf_counter() - begin) * 1e3)

    def copy() -> None:
        for name, tensor in state.items():
            into[name].copy_(tensor)

    for _ in range(options.rounds):
        timed("save, shared_tensor", lambda: dcp.save(state, storage_writer=PublishedWriter("run", client)))
        timed("load, shared_tensor", lambda: dcp.load(into, storage_reader=PublishedReader("run", client)))
        assert all(torch.equal(into[name], tensor) for name, tensor in state.items())
        folder = tempfile.mkdtemp(dir="/dev/shm")
        timed("save, files in memory", lambda: dcp.save(state, storage_writer=dcp.FileSystemWriter(folder)))  # noqa: B023
        timed("load, files in memory", lambda: dcp.load(into, storage_reader=dcp.FileSystemReader(folder)))  # noqa: B023
        shutil.rmtree(folder)
        timed("a copy of the same tensors", copy)
    print(f"{options.mib} MiB in {MEMBERS} tensors, one process, ms (median of {options.rounds})")
    for title, figures in times.items():
        print(f"{title:30} {statistics.median(figures):8.0f}   {[round(one) for one in figures]}")


if __name__ == "__main__":
    main()
