"""A server is killed while processes read 1 GiB that it has published: how soon everything is there again.

    python benchmarks/restart_bench.py [--mib 1024] [--readers 8] [--kills 20]

Needs an environment with the wheel and NumPy. Prints, over all kills, from the start of the next process: when it
answers, and when it has all names and versions; and how much shared memory the restarts cost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import time
import urllib.request
from typing import Any

import shared_tensor

PROGRAMS = pathlib.Path(shared_tensor.__file__).parent / "bin"
MEMBERS = 64


def shared_memory() -> int:
    """Bytes of all shared memory of this machine."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) << 10


def read(url: str, ready: Any, stop: Any, faults: Any) -> None:
    weights = shared_tensor.NamedTensors(shared_tensor.Client(url).options(framework="numpy")).get("weights")
    tensors = dict(weights)
    ready.release()
    while not stop.is_set():
        for number, name in enumerate(sorted(tensors)):
            if tensors[name][:: 1 << 10].max() != number or tensors[name].min() != number:
                faults.value += 1


def server_of(keeper: subprocess.Popen[bytes]) -> int:
    children = pathlib.Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def tag(url: str) -> str | None:
    try:
        request = urllib.request.Request(f"{url}/tensors/weights.safetensors", method="HEAD")
        return urllib.request.urlopen(request, timeout=10).headers["ETag"]
    except OSError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    keeper = subprocess.Popen(
        [PROGRAMS / "shared-tensor-keeper", "--", PROGRAMS / "shared-tensor-server", "--port", str(port)],
        stderr=subprocess.DEVNULL,
    )
    context = multiprocessing.get_context("spawn")
    ready, stop, faults = context.Semaphore(0), context.Event(), context.Value("i", 0)
    readers = [context.Process(target=read, args=(url, ready, stop, faults)) for _ in range(options.readers)]
    try:
        names = shared_tensor.NamedTensors(shared_tensor.Client(url, wait_for_server=10).options(framework="numpy"))
        size = (options.mib << 20) // MEMBERS
        tensors = names.empty_set({f"t{i:02}": ((size,), "uint8") for i in range(MEMBERS)})
        for number, name in enumerate(sorted(tensors)):
            tensors[name][:] = number
        names.publish("weights", tensors)
        del tensors
        for reader in readers:
            reader.start()
        for _ in readers:
            ready.acquire()
        before, expected = shared_memory(), tag(url)
        times = []
        for _ in range(options.kills):
            time.sleep(1.1)  # a server that ran for a second is started again at once
            killed = server_of(keeper)
            os.kill(killed, signal.SIGKILL)
            while server_of(keeper) in (0, killed):
                pass
            start = time.monotonic()
            while (found := tag(url)) is None:
                time.sleep(0.001)
            times.append((time.monotonic() - start) * 1e3)
            if found != expected:
                raise RuntimeError(f"version {found} instead of {expected}")
        print(f"{options.mib} MiB, {options.readers} readers, {options.kills} kills:")
        print(f"  all names there after  {statistics.median(times):6.0f} ms (p50), {max(times):.0f} ms (most)")
        print(f"  more shared memory     {(shared_memory() - before) / 2**20:6.1f} MiB")
        print(f"  readers that saw other bytes: {faults.value}")
    finally:
        stop.set()
        for reader in readers:
            if reader.pid is not None:
                reader.join()
        keeper.terminate()
        keeper.wait()


if __name__ == "__main__":
    main()
