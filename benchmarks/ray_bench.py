"""Calls and weights in a Ray cluster of four nodes, beside Ray's own: each node in a network namespace of its own.

    python benchmarks/ray_bench.py [--mib 1024] [--rounds 3]

As root, with a Python that has shared_tensor, ray and numpy. All rows come from one run, and the two sides take turns.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests/python"
sys.path.insert(0, str(TESTS))

NODES = 4
MEMBERS = 64


def outside(options: argparse.Namespace) -> int:
    from ray_nodes import RayNodes

    with tempfile.TemporaryDirectory() as folder:
        nodes = RayNodes(NODES, pathlib.Path(folder), store_bytes=options.mib * 5 << 18, cpus=2)
        try:
            address = f"{nodes.address(0)}:6379"
            words = ["--address", address, "--mib", str(options.mib), "--rounds", str(options.rounds)]
            return nodes.popen(0, sys.executable, "-B", str(pathlib.Path(__file__).resolve()), *words).wait()
        finally:
            nodes.remove()


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def show(title: str, figures: list[float], unit: str, factor: float) -> float:
    middle = statistics.median(figures) * factor
    print(f"{title:58} {middle:10.1f} {unit}   {[round(one * factor, 1) for one in figures]}", flush=True)
    return middle


def small_calls(ray: Any, rounds: int) -> None:
    import ray_functions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    here = {"scheduling_strategy": On(ray.get_runtime_context().get_node_id(), soft=False)}
    handle = ray_functions.provider.deploy(num_cpus=0.1, actor_options=here)
    assert handle.replicas()[0].near, "the replica is on another node"

    @ray.remote(num_cpus=0.1)
    class Plain:
        def one(self) -> int:
            return 1

    plain = Plain.options(**here).remote()
    ours: list[float] = []
    rays: list[float] = []
    for _ in range(300):
        handle.one()
        ray.get(plain.one.remote())
    for _ in range(rounds):
        ours.append(statistics.median(seconds(handle.one) for _ in range(2000)))
        rays.append(statistics.median(seconds(lambda: ray.get(plain.one.remote())) for _ in range(1000)))
    a, b = show("small call, shared_tensor, same node", ours, "us", 1e6), show("small call, Ray actor", rays, "us", 1e6)
    print(f"{'ratio':58} {a / b:10.2f}   (asked: at most 0.2)", flush=True)


def weights(ray: Any, mib: int, rounds: int) -> None:
    import numpy
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    import shared_tensor.ray as fleet

    @ray.remote(num_cpus=0.1)
    class Reader:
        def __init__(self) -> None:
            self.names = fleet.names(framework="numpy", timeout=None)
            self.held: Any = None

        def ready(self) -> bool:
            return True

        def ours(self, version: int) -> float:
            self.held = self.names.get("weights")
            assert self.held.version == version
            return sum(float(self.held[member][0]) for member in self.held)

        def rays(self, reference: list[Any]) -> float:
            self.held = ray.get(reference[0])
            return sum(float(member[0]) for member in self.held.values())

    readers = [Reader.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote() for node in ray.nodes()]
    ray.get([reader.ready.remote() for reader in readers])
    names = fleet.names(framework="numpy", timeout=None)
    count = mib * (1 << 20) // 4 // MEMBERS
    content = {f"m{i:02}": numpy.zeros(count, dtype=numpy.float32) for i in range(MEMBERS)}
    figures: dict[str, list[float]] = {}

    def note(title: str, time_s: float) -> None:
        figures.setdefault(title, []).append(time_s)

    for _ in range(rounds):
        for array in content.values():
            array += 1  # all of it is new
        sums = [sum(float(array[0]) for array in content.values())] * NODES

        begin = time.perf_counter()
        version = names.publish("weights", content).version
        note("published, shared_tensor", time.perf_counter() - begin)
        assert ray.get([reader.ours.remote(version) for reader in readers]) == sums
        note("published and read on all nodes, shared_tensor", time.perf_counter() - begin)

        begin = time.perf_counter()
        reference = ray.put(content)
        note("put, Ray", time.perf_counter() - begin)
        assert ray.get([reader.rays.remote([reference]) for reader in readers]) == sums
        note("put and read on all nodes, Ray", time.perf_counter() - begin)
        ray.get([reader.ready.remote() for reader in readers])
        del reference
        time.sleep(2)
    print(f"{mib} MiB in {MEMBERS} arrays, {NODES} nodes of one machine, {rounds} versions", flush=True)
    for title, times in figures.items():
        show(title, times, "ms", 1e3)


def inside(options: argparse.Namespace) -> int:
    import ray

    ray.init(
        address=options.address,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(TESTS)}},
    )
    while sum(node["Alive"] for node in ray.nodes()) < NODES:
        time.sleep(0.1)
    small_calls(ray, options.rounds)
    weights(ray, options.mib, options.rounds)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    return inside(options) if options.address else outside(options)


if __name__ == "__main__":
    sys.exit(main())
