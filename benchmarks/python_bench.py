"""Measures the Python package beside its peers, all in one run.

    pip install build/python/dist/shared_tensor-*.whl numpy torch grpcio fastapi uvicorn httpx ray pyarrow
    python benchmarks/python_bench.py [--only small | throughput | tensors | weights] [--plugin libexample_plugin.so]

Peers that are not installed are left out. The rows of a group are measured by turns, so that what else the machine does
hits all of them alike: compare rows of one run. "C++ client" is the same call timed inside the C++ library.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy

import shared_tensor

Call = Callable[[], object]
FLOATS = 1 << 24  # 64 MiB
ROUNDS = 20

provider = shared_tensor.SharedTensorProvider(execution_mode="server")
held: numpy.ndarray | None = None


@provider.share()
def add(a: float, b: float) -> float:
    return a + b


@provider.share()
def held_tensor(context: shared_tensor.Context) -> numpy.ndarray:
    """Returns a tensor that this process keeps in shared memory."""
    global held
    if held is None:
        held = context.empty([FLOATS], framework="numpy")
        held[:] = 1
    return held


@provider.share()
def fresh_tensor() -> numpy.ndarray:
    return numpy.ones(FLOATS, numpy.float32)


# ---- servers in processes of their own


@contextlib.contextmanager
def process(command: list[str], ready: str = "") -> Iterator[None]:
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if ready and started.stdout is not None:
            next(line for line in started.stdout if ready in line)
        yield
    finally:
        started.terminate()
        started.wait()


@contextlib.contextmanager
def our_provider() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        ready = os.path.join(folder, "url")
        module = os.path.splitext(os.path.basename(__file__))[0]
        os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, "-m", "shared_tensor.server", f"{module}:provider", "--port", "0"]
        with process([*command, "--ready-file", ready], ready="functions at"), open(ready) as file:
            yield file.read()


@contextlib.contextmanager
def our_daemon(plugin: str | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"unix:{folder}/socket"
        load = ["--load", plugin] if plugin else []
        command = ["shared-tensor-server", "--port", "0", "--unix-socket", f"{folder}/socket", *load]
        with process(command):
            client = shared_tensor.Client(url, wait_for_server=30)
            client.ping()
            yield url


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


@contextlib.contextmanager
def grpc_peer() -> Iterator[dict[str, Call]]:
    import grpc

    code = f"""
import grpc, json, numpy
from concurrent import futures
ones = numpy.ones({FLOATS}, numpy.float32)
calls = {{"add": lambda body, _: json.dumps(sum(json.loads(body))).encode(), "tensor": lambda body, _: ones.tobytes()}}
class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(calls[details.method.rpartition("/")[2]])
server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)])
server.add_generic_rpc_handlers((Handler(),))
print("port", server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start(); server.wait_for_termination()
"""
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
        stack.callback(started.terminate)
        assert started.stdout is not None
        port = started.stdout.readline().split()[1]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)])
        plain, tensor = channel.unary_unary("/bench/add"), channel.unary_unary("/bench/tensor")
        plain(b"[1, 2]", wait_for_ready=True)
        yield {"add": lambda: plain(b"[1, 2]"), "tensor": lambda: numpy.frombuffer(tensor(b""), numpy.float32)[0]}


@contextlib.contextmanager
def fastapi_peer() -> Iterator[dict[str, Call]]:
    import httpx

    code = f"""
import fastapi, numpy, socket, uvicorn
ones = numpy.ones({FLOATS}, numpy.float32)
app = fastapi.FastAPI()
@app.post("/add")
def add(numbers: list[float]) -> float: return sum(numbers)
@app.get("/tensor")
def tensor() -> fastapi.Response: return fastapi.Response(ones.tobytes())
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
listener.bind(("127.0.0.1", 0)); print("port", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])
"""
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
        stack.callback(started.terminate)
        assert started.stdout is not None
        port = started.stdout.readline().split()[1]
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        while True:
            with contextlib.suppress(httpx.TransportError):
                client.post("/add", json=[1, 2])
                break
        yield {
            "add": lambda: client.post("/add", json=[1, 2]).json(),
            "tensor": lambda: numpy.frombuffer(client.get("/tensor").content, numpy.float32)[0],
        }


def torch_answers(questions: object, answers: object) -> None:
    import torch

    kept = torch.ones(FLOATS).share_memory_()
    while (question := questions.get()) is not None:  # type: ignore[attr-defined]
        answers.put(kept if question == "tensor" else sum(question))  # type: ignore[attr-defined]


@contextlib.contextmanager
def torch_peer() -> Iterator[dict[str, Call]]:
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    questions, answers = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=torch_answers, args=(questions, answers), daemon=True)
    other.start()

    def ask(question: object) -> object:
        questions.put(question)
        return answers.get()

    ask([1, 2])
    yield {"add": lambda: ask([1, 2]), "tensor": lambda: ask("tensor")[0].item()}  # type: ignore[index]
    questions.put(None)
    other.join()


@contextlib.contextmanager
def ray_peer() -> Iterator[dict[str, Call]]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 29)

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.kept = [ray.put(numpy.ones(FLOATS, numpy.float32))]

        def add(self, a: float, b: float) -> float:
            return a + b

        def tensor(self) -> object:
            return self.kept

    actor = Actor.remote()  # type: ignore[attr-defined]
    ray.get(actor.add.remote(1, 2))
    yield {
        "add": lambda: ray.get(actor.add.remote(1, 2)),
        "tensor": lambda: ray.get(ray.get(actor.tensor.remote())[0])[0],
    }
    ray.shutdown()


PEERS = {
    "torch.multiprocessing SimpleQueue (no errors, no deadlines)": (("torch",), torch_peer),
    "gRPC Python": (("grpc",), grpc_peer),
    "FastAPI, uvicorn, httpx": (("fastapi", "uvicorn", "httpx"), fastapi_peer),
    "Ray": (("ray",), ray_peer),
}


# ---- measuring


def by_turns(rows: dict[str, Callable[[], float]], slices: int) -> dict[str, float]:
    """The median of each row's figure, in microseconds."""
    seen: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(slices):
        for name, measure in rows.items():
            seen[name].append(measure())
    return {name: statistics.median(figures) for name, figures in seen.items()}


def timed(call: Call) -> Callable[[], float]:
    """The median of the calls of 30 ms, at least three."""

    def measure() -> float:
        times: list[int] = []
        while len(times) < 3 or sum(times) < 30e6:
            begin = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - begin)
        return statistics.median(times) / 1e3

    return measure


def show(title: str, figures: dict[str, float], unit: str = "us") -> None:
    print(f"\n{title}")
    for name, figure in figures.items():
        print(f"  {figure:12,.1f} {unit}  {name}")


def target(text: str, value: float, bound: float) -> None:
    print(f"  {'reached' if value <= bound else 'missed'}: {text}: {value:.2f} (at most {bound})")


def pinned(core: bool) -> None:
    os.sched_setaffinity(0, {0} if core else set(range(os.cpu_count() or 1)))


def small(peers: dict[str, dict[str, Call]], daemon: str, url: str, plugin: bool) -> None:
    theirs, ours = shared_tensor.Client(daemon), shared_tensor.Client(url)
    rows: dict[str, Callable[[], float]] = {
        "C++ client, a method of the server": lambda: statistics.median(theirs.ping() * 1e6 for _ in range(200)),
        "Python client, the same method": timed(lambda: theirs.call("server.ping")),
    }
    if plugin:
        rows["Python client, C++ function"] = timed(lambda: theirs.call("add", 1, 2))
    rows["Python client, Python function"] = timed(lambda: ours.call("add", 1, 2))
    rows |= {name: timed(calls["add"]) for name, calls in peers.items()}
    figures = by_turns(rows, ROUNDS)
    show("a small call", figures)
    cpp, python = figures["C++ client, a method of the server"], figures["Python client, the same method"]
    target("Python client beside the C++ client", python / cpp, 1.5)
    if plugin:
        ratio = figures["Python client, Python function"] / figures["Python client, C++ function"]
        target("Python function beside the C++ function", ratio, 2.0)


def tensors(peers: dict[str, dict[str, Call]], url: str) -> None:
    ours = shared_tensor.Client(url, framework="numpy")
    core = shared_tensor.Client(url, framework="none")
    rows = {
        "shared_tensor, without a framework": timed(lambda: core.call("held_tensor")),
        "shared_tensor, NumPy": timed(lambda: ours.call("held_tensor")[0]),
    } | {name: timed(calls["tensor"]) for name, calls in peers.items()}
    show("a held tensor of 64 MiB, and its first element", by_turns(rows, 7))
    rows = {"shared_tensor, NumPy": timed(lambda: ours.call("fresh_tensor")[0])}
    show("a fresh tensor of 64 MiB", by_turns(rows, 7))


def weights(daemon: str) -> None:
    names = shared_tensor.NamedTensors(shared_tensor.Client(daemon, framework="numpy", timeout=120))
    layers = {f"layer.{n}": numpy.ones((1 << 22,), numpy.float32) for n in range(64)}  # 1 GiB
    begin = time.perf_counter()
    names.publish("weights", layers)
    published = time.perf_counter() - begin
    rows = {"read all 64 members": timed(lambda: [t[0] for t in names.get("weights").values()])}
    figures = by_turns(rows, 7)
    show("weights of 1 GiB", {"publish, once": published * 1e6, **figures})


def caller(url: str, seconds: float, counted: object) -> None:
    client = shared_tensor.Client(url)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        client.call("add", 1, 2)
        count += 1
    counted.put(count)  # type: ignore[attr-defined]


def throughput(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    counted = context.SimpleQueue()
    callers = [context.Process(target=caller, args=(url, 3.0, counted)) for _ in range(8)]
    for one in callers:
        one.start()
    total = sum(counted.get() for _ in callers)
    show("8 client processes, one Python function", {"shared_tensor": total / 3.0}, "calls/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["small", "throughput", "tensors", "weights"])
    parser.add_argument("--plugin", help="a plugin with a function add(a, b)")
    options = parser.parse_args()
    wanted = [options.only] if options.only else ["small", "throughput", "tensors", "weights"]
    for core in (True, False):
        pinned(core)
        with contextlib.ExitStack() as stack:
            peers = {name: stack.enter_context(peer()) for name, (modules, peer) in PEERS.items() if has(*modules)}
            daemon, url = stack.enter_context(our_daemon(options.plugin)), stack.enter_context(our_provider())
            print("\n== one core" if core else "\n== all cores")
            if "small" in wanted:
                small(peers, daemon, url, bool(options.plugin))
            if "throughput" in wanted and not core:
                throughput(url)
            if "tensors" in wanted:
                tensors(peers, url)
            if "weights" in wanted and not core:
                weights(daemon)


if __name__ == "__main__":
    main()
