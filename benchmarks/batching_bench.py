"""Measures what joined calls give: a voice activity model (Silero), called by 32 clients for one window each.

    pip install build/python/dist/shared_tensor-*.whl torch
    python benchmarks/batching_bench.py SILERO_VAD.JIT [--clients 32] [--seconds 3]

The model is in the folder silero_vad of `scripts/fetch_deps --print-dir`. The two functions run the same model, one
call at a time; the calls of the second are joined. They are measured by turns. The targets: at least 3 times the calls
a second, and 99 of 100 calls end within the wait and the longest run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import torch

import shared_tensor
from shared_tensor.async_client import AsyncClient

RATE, WINDOW = 16000, 512
ROWS, WAIT = 32, 0.0  # of a joined run, and seconds that a call waits for others

provider = shared_tensor.SharedTensorProvider(execution_mode="server")
longest_run = 0.0
one_at_a_time = threading.Lock()  # both functions use the model


def probabilities(windows: torch.Tensor) -> torch.Tensor:
    """The probability that each window is speech, without the windows before."""
    global longest_run
    begun = time.perf_counter()
    with one_at_a_time, torch.inference_mode():
        model.reset_states()
        result = model(windows, RATE)
    longest_run = max(longest_run, time.perf_counter() - begun)
    return result


@provider.share(concurrency=1)
def alone(windows: torch.Tensor) -> torch.Tensor:
    return probabilities(windows)


@provider.share(concurrency=1, batched=(ROWS, WAIT))
def joined(windows: torch.Tensor) -> torch.Tensor:
    return probabilities(windows)


@provider.share()
def longest() -> float:
    """The longest run since the last call, in seconds."""
    global longest_run
    last, longest_run = longest_run, 0.0
    return last


def measure(url: str, function: str, clients: int, seconds: float) -> list[float]:
    """The times of all calls, in seconds. The clients share a process, and one thread of Python."""
    times: list[float] = []

    async def call(client: AsyncClient, seed: int, end: float) -> None:
        window = torch.rand(1, WINDOW, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        expected = await client.call("alone", window)
        while (begun := time.perf_counter()) < end:
            result = await client.call(function, window)
            times.append(time.perf_counter() - begun)
            assert torch.allclose(result, expected, atol=1e-5), (result, expected)

    async def call_all() -> None:
        async with AsyncClient(url, concurrency=clients) as client:
            end = time.perf_counter() + seconds
            await asyncio.gather(*(call(client, seed, end) for seed in range(clients)))

    asyncio.run(call_all())
    return sorted(times)


def report(url: str, clients: int, seconds: float) -> None:
    client = shared_tensor.Client(url)
    rounds: dict[str, list[float]] = {"alone": [], "joined": []}
    runs = {"alone": 0.0, "joined": 0.0}
    for _ in range(3):
        for function, times in rounds.items():
            client.call("longest")
            times.extend(measure(url, function, clients, seconds))
            runs[function] = max(runs[function], client.call("longest"))
    for function, times in rounds.items():
        times.sort()
        rate = len(times) / (3 * seconds)
        middle, late = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        print(
            f"{function:8} {rate:8.0f} calls/s   p50 {middle:6.2f} ms   p99 {late:6.2f} ms   "
            f"longest run {runs[function] * 1000:6.2f} ms"
        )
    print(f"joined / alone: {len(rounds['joined']) / len(rounds['alone']):.1f} (at least 3)")
    late = rounds["joined"][int(len(rounds["joined"]) * 0.99)]
    print(f"p99 / (wait + longest run): {late / (WAIT + runs['joined']):.2f} (at most 1)")
    print("batches:", client.info()["totals"]["functions"]["joined"]["batches"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", help="silero_vad.jit")
    arguments.add_argument("--clients", type=int, default=32)
    arguments.add_argument("--seconds", type=float, default=3)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ready = pathlib.Path(folder, "url")
        environment = {**os.environ, "BATCHING_MODEL": options.model, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        command = [sys.executable, "-m", "shared_tensor.server", "batching_bench:provider", "--port", "0"]
        server = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment)
        try:
            while not ready.exists():
                assert server.poll() is None, "the server ended"
                time.sleep(0.01)
            report(ready.read_text().strip(), options.clients, options.seconds)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
elif "BATCHING_MODEL" in os.environ:  # in the server
    torch.set_num_threads(1)
    model = torch.jit.load(os.environ["BATCHING_MODEL"])
