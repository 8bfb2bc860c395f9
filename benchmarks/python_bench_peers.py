"""The peers of python_bench.py, and shared_tensor itself, each as a server and as callers in processes of their own.

    python python_bench_peers.py serve NAME            prints "ready ADDRESS"
    python python_bench_peers.py call NAME ADDRESS     prints "ready", then answers lines of standard input:
        OPERATION                  the median of the calls of 30 ms, at least three, in microseconds
        once OPERATION             one call, in microseconds
        count OPERATION SECONDS    how many calls it makes in that time

Operations: `add` adds two numbers in the server. `held` gets 64 MiB that the server has, `fresh` 64 MiB that it makes,
and reads the first element. `publish` gives the server 64 arrays of 16 MiB, `attach` gets them and reads the first
element of each. Of shared_tensor also: `born` publishes such arrays that were made where the server keeps them, `file`
a safetensors file of them, `node` the arrays in the server of a Node, `push` over TCP; `copy` and `read` only copy or
read them into fresh memory. Only the packages of the named peer need to be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

Operations = dict[str, Callable[[], Any]]
FLOATS = 1 << 24  # 64 MiB
MEMBERS, MEMBER_FLOATS = 64, 1 << 22  # 1 GiB


@functools.cache
def layers() -> dict[str, Any]:
    import numpy

    return {f"layer.{n}": numpy.full(MEMBER_FLOATS, 1, numpy.float32) for n in range(MEMBERS)}


class Publication:
    """Publishes the same arrays each time. They are made before the first publication, which is not measured."""

    def __init__(self, publish: Callable[[dict[str, Any]], Any]) -> None:
        self._publish = publish
        self._layers: dict[str, Any] = {}

    def prepare(self) -> None:
        self._layers = layers()

    def __call__(self) -> None:
        self._publish(self._layers)


class Born:
    """Publishes arrays that were made where the server keeps them. prepare() makes and fills them."""

    def __init__(self, names: Any) -> None:
        self._names = names
        self._layers: dict[str, Any] = {}

    def prepare(self) -> None:
        self._layers = self._names.empty_set({f"layer.{n}": ((MEMBER_FLOATS,), "float32") for n in range(MEMBERS)})
        for array in self._layers.values():
            array[:] = 1

    def __call__(self) -> None:
        assert self._names.publish("weights", self._layers).copied == 0


class OfNode(Publication):
    """Publishes the arrays in the server of a new node of this process: in memory that was not used before."""

    def __init__(self) -> None:
        self._node: Any = None
        self._loop = asyncio.new_event_loop()
        super().__init__(lambda arrays: self._loop.run_until_complete(self._node.publish("weights", arrays)))

    def prepare(self) -> None:
        from shared_tensor.node import Node

        super().prepare()
        if self._node is not None:
            self._loop.run_until_complete(self._node.shutdown())
        self._node = Node()
        self._loop.run_until_complete(self._node.start())


def fresh_memory() -> Any:
    import mmap

    import numpy

    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return numpy.frombuffer(mmap.mmap(-1, 4 * MEMBERS * MEMBER_FLOATS, flags=private), numpy.float32)


class Copy(Publication):
    """Copies the arrays into memory that was not used before: what one copy costs on this machine."""

    def __init__(self) -> None:
        super().__init__(self._copy)
        self._memory: Any = None

    def prepare(self) -> None:
        super().prepare()
        self._memory = fresh_memory()

    def _copy(self, arrays: dict[str, Any]) -> None:
        for part, array in zip(self._memory.reshape(MEMBERS, MEMBER_FLOATS), arrays.values(), strict=True):
            part[:] = array


class File:
    """Publishes a safetensors file, or only reads it into fresh memory. Both have freed as much memory just before."""

    _path = ""  # the file has no name, so that it ends with this process, however that ends

    def __init__(self, names: Any, publishes: bool) -> None:
        self._names, self._publishes, self._memory = names, publishes, None

    def prepare(self) -> None:
        if self._publishes:
            self._names.remove("file")
            time.sleep(0.5)  # the server frees it in the background
        else:
            self._memory = fresh_memory()
        if not File._path:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "weights.safetensors")
                self._names.get("weights").save(path)
                file = os.open(path, os.O_RDONLY)
            os.fsync(file)  # else the disk and the kernel are busy with it during the measurement
            File._path = f"/proc/self/fd/{file}"

    def __call__(self) -> None:
        if self._publishes:
            self._names.publish_file("file", self._path)
            return
        with open(self._path, "rb", buffering=0) as file:
            left = memoryview(self._memory).cast("B")
            while left and (count := file.readinto(left)):
                left = left[count:]


def ready(address: object = "") -> None:
    print("ready", address, flush=True)


# ---- shared_tensor; its servers are started by python_bench.py


def ours(address: str) -> Operations:
    """address: the urls of the daemon, of the provider, and of the provider with a worker process. NumPy is imported at
    once, as in each program that has arrays: its import is not a part of the first result."""
    import numpy  # noqa: F401

    import shared_tensor

    daemon, provider, passing = (shared_tensor.Client(url, framework="numpy", timeout=120) for url in address.split())
    plain = provider.options(framework="none")
    names = shared_tensor.NamedTensors(daemon)
    elsewhere = shared_tensor.NamedTensors(shared_tensor.Client(address.split()[0], local_socket="none", timeout=120))
    return {
        "ping": lambda: daemon.call("server.ping"),
        "cpp_add": lambda: daemon.call("add", 1, 2),
        "add": lambda: provider.call("add", 1, 2),
        "worker_add": lambda: passing.call("add", 1, 2),
        "worker_held": lambda: passing.call("held_tensor")[0],
        "held_plain": lambda: plain.call("held_tensor"),
        "held": lambda: provider.call("held_tensor")[0],
        "fresh": lambda: provider.call("fresh_tensor")[0],
        "publish": Publication(lambda arrays: names.publish("weights", arrays)),
        "attach": lambda: [array[0] for array in names.get("weights").values()],
        "node": OfNode(),
        "push": Publication(lambda arrays: elsewhere.publish("weights", arrays)),
        "born": Born(names),
        "copy": Copy(),
        "file": File(names, publishes=True),
        "read": File(names, publishes=False),
    }


# ---- gRPC Python


def serve_grpc() -> None:
    from concurrent import futures

    import grpc
    import numpy

    ones, stored = numpy.ones(FLOATS, numpy.float32), {}

    def put(body: bytes, context: Any) -> bytes:
        stored[dict(context.invocation_metadata())["name"]] = body
        return b""

    methods = {
        "add": lambda body, _: json.dumps(sum(json.loads(body))).encode(),
        "held": lambda *_: ones.tobytes(),
        "fresh": lambda *_: numpy.ones(FLOATS, numpy.float32).tobytes(),
        "put": put,
        "get": lambda body, _: stored[body.decode()],
    }

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(methods[details.method.rpartition("/")[2]])

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ready(f"127.0.0.1:{port}")
    server.wait_for_termination()


def call_grpc(address: str) -> Operations:
    import grpc
    import numpy

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(address, options=options)
    calls = {name: channel.unary_unary(f"/bench/{name}") for name in ("add", "held", "fresh", "put", "get")}

    def first(body: bytes) -> Any:
        return numpy.frombuffer(body, numpy.float32)[0]

    def publish(arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            calls["put"](array.tobytes(), metadata=[("name", name)])

    return {
        "add": lambda: calls["add"](b"[1, 2]", timeout=30),
        "held": lambda: first(calls["held"](b"")),
        "fresh": lambda: first(calls["fresh"](b"")),
        "publish": Publication(publish),
        "attach": lambda: [first(calls["get"](f"layer.{n}".encode())) for n in range(MEMBERS)],
    }


# ---- FastAPI, uvicorn, httpx


def serve_fastapi() -> None:
    import socket

    import fastapi
    import numpy
    import uvicorn

    app = fastapi.FastAPI()
    ones, stored = numpy.ones(FLOATS, numpy.float32), {}

    @app.post("/add")
    def add(numbers: list[float]) -> float:
        return sum(numbers)

    @app.get("/held")
    def held() -> fastapi.Response:
        return fastapi.Response(ones.tobytes())

    @app.get("/fresh")
    def fresh() -> fastapi.Response:
        return fastapi.Response(numpy.ones(FLOATS, numpy.float32).tobytes())

    async def put(name: str, request: fastapi.Request) -> None:
        stored[name] = await request.body()

    put.__annotations__["request"] = fastapi.Request  # the annotations of this file are texts
    app.put("/layers/{name}")(put)

    @app.get("/layers/{name}")
    def get(name: str) -> fastapi.Response:
        return fastapi.Response(stored[name])

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    listener.bind(("127.0.0.1", 0))
    ready(f"http://127.0.0.1:{listener.getsockname()[1]}")
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


def call_fastapi(address: str) -> Operations:
    import httpx
    import numpy

    client = httpx.Client(base_url=address, timeout=60)
    while True:
        with contextlib.suppress(httpx.TransportError):
            client.post("/add", json=[1, 2]).raise_for_status()
            break

    def first(path: str) -> Any:
        return numpy.frombuffer(client.get(path).raise_for_status().content, numpy.float32)[0]

    def publish(arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            client.put(f"/layers/{name}", content=array.tobytes()).raise_for_status()

    return {
        "add": lambda: client.post("/add", json=[1, 2]).json(),
        "held": lambda: first("/held"),
        "fresh": lambda: first("/fresh"),
        "publish": Publication(publish),
        "attach": lambda: [first(f"/layers/layer.{n}") for n in range(MEMBERS)],
    }


# ---- Arrow Flight


def table_of(arrays: dict[str, Any]) -> Any:
    import pyarrow

    return pyarrow.table({name: pyarrow.array(array) for name, array in arrays.items()})


def serve_flight() -> None:
    import numpy
    import pyarrow.flight

    ones = table_of({"x": numpy.ones(FLOATS, numpy.float32)})
    stored: dict[bytes, Any] = {b"held": ones}

    class Server(pyarrow.flight.FlightServerBase):
        def do_action(self, context: Any, action: Any) -> Any:
            return [json.dumps(sum(json.loads(action.body.to_pybytes()))).encode()]

        def do_get(self, context: Any, ticket: Any) -> Any:
            fresh = ticket.ticket == b"fresh"
            table = table_of({"x": numpy.ones(FLOATS, numpy.float32)}) if fresh else stored[ticket.ticket]
            return pyarrow.flight.RecordBatchStream(table)

        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            stored[descriptor.path[0]] = reader.read_all()

    server = Server("grpc://127.0.0.1:0")
    ready(f"grpc://127.0.0.1:{server.port}")
    server.serve()


def call_flight(address: str) -> Operations:
    import pyarrow.flight

    client = pyarrow.flight.connect(address)
    question = pyarrow.flight.Action("add", b"[1, 2]")
    limit = pyarrow.flight.FlightCallOptions(timeout=30)

    def first(name: bytes) -> list[Any]:
        return [column[0].as_py() for column in client.do_get(pyarrow.flight.Ticket(name)).read_all().columns]

    def publish(arrays: dict[str, Any]) -> None:
        table = table_of(arrays)
        writer, _ = client.do_put(pyarrow.flight.FlightDescriptor.for_path("weights"), table.schema)
        writer.write_table(table)
        writer.close()

    return {
        "add": lambda: next(iter(client.do_action(question, limit))).body.to_pybytes(),
        "held": lambda: first(b"held"),
        "fresh": lambda: first(b"fresh"),
        "publish": Publication(publish),
        "attach": lambda: first(b"weights"),
    }


# ---- Ray


def serve_ray() -> None:
    import numpy
    import ray

    context = ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=int(os.environ["BENCH_RAY_STORE"]),
        namespace="bench",
    )

    @ray.remote(num_cpus=0)
    class Holder:
        def __init__(self) -> None:
            self.kept = [ray.put(numpy.ones(FLOATS, numpy.float32))]
            self.weights: list[Any] = []

        def add(self, a: float, b: float) -> float:
            return a + b

        def held(self) -> object:
            return self.kept

        def fresh(self) -> object:
            return numpy.ones(FLOATS, numpy.float32)

        def put(self, weights: list[Any]) -> None:
            self.weights = weights

        def get(self) -> object:
            return self.weights

    holder = Holder.options(name="holder").remote()  # type: ignore[attr-defined]
    ray.get(holder.add.remote(1, 2))
    ready(context.address_info["address"])
    sys.stdin.read()


def call_ray(address: str) -> Operations:
    import ray

    ray.init(address=address, namespace="bench", log_to_driver=False, logging_level="ERROR")
    holder = ray.get_actor("holder")
    return {
        "add": lambda: ray.get(holder.add.remote(1, 2), timeout=30),
        "held": lambda: ray.get(ray.get(holder.held.remote())[0])[0],
        "fresh": lambda: ray.get(holder.fresh.remote())[0],
        "publish": Publication(lambda arrays: ray.get(holder.put.remote([ray.put(arrays)]))),
        "attach": lambda: [array[0] for array in ray.get(ray.get(holder.get.remote())[0]).values()],
    }


# ---- torch.multiprocessing: its queues are inherited, so callers and their server belong to one program


def answer_with_torch(questions: Any, answers: list[Any]) -> None:
    import torch

    held = torch.ones(FLOATS).share_memory_()
    own: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    while (question := questions.get()) is not None:
        number, asked = question
        if asked == "held":
            answer: Any = held
        elif asked == "fresh":
            answer = torch.ones(FLOATS)
        elif asked == "prepare":
            own, answer = {name: torch.from_numpy(array) for name, array in layers().items()}, 0
        elif asked == "publish":
            weights, answer = {name: tensor.clone().share_memory_() for name, tensor in own.items()}, 0
        elif asked == "attach":
            answer = weights
        else:
            answer = sum(asked)
        answers[number].put(answer)


def ask_many(number: int, questions: Any, answers: Any, seconds: float, counted: Any) -> None:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        questions.put((number, [1, 2]))
        answers.get()
        count += 1
    counted.put(count)


class TorchPublication:
    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask

    def prepare(self) -> None:
        self._ask("prepare")

    def __call__(self) -> None:
        self._ask("publish")


def call_torch(address: str) -> Operations:
    """address: how many callers `count` has."""
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    callers = int(address)
    questions, answers = context.SimpleQueue(), [context.SimpleQueue() for _ in range(callers + 1)]
    context.Process(target=answer_with_torch, args=(questions, answers), daemon=True).start()

    def ask(question: Any) -> Any:
        questions.put((callers, question))
        return answers[callers].get()

    def count(seconds: float) -> int:
        counted = context.SimpleQueue()
        arguments = [(n, questions, answers[n], seconds, counted) for n in range(callers)]
        others = [context.Process(target=ask_many, args=given, daemon=True) for given in arguments]
        for other in others:
            other.start()
        return sum(counted.get() for _ in others)

    ask([1, 2])
    return {
        "add": lambda: ask([1, 2]),
        "held": lambda: ask("held")[0].item(),
        "fresh": lambda: ask("fresh")[0].item(),
        "publish": TorchPublication(ask),
        "attach": lambda: [tensor[0].item() for tensor in ask("attach").values()],
        "count": count,  # type: ignore[dict-item]
    }


# ---- shared-tensor 0.1.2 of PyPI: the server imports what the caller names, here this file

stored: dict[str, Any] = {}


def first_add(a: float, b: float) -> float:
    return a + b


def first_ones() -> Any:
    import numpy

    return numpy.ones(FLOATS, numpy.float32)  # a torch.Tensor is moved to a GPU, and fails where there is none


def first_put(name: str, array: Any) -> None:
    stored[name] = array


def first_get(name: str) -> Any:
    return stored[name]


def serve_first() -> None:
    import socket

    from shared_tensor.server import SharedTensorServer

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready(port)
    SharedTensorServer("127.0.0.1", port).start(blocking=True)  # type: ignore[call-arg]


def call_first(address: str) -> Operations:
    from shared_tensor.client import SharedTensorClient

    client = SharedTensorClient(int(address), timeout=300)

    def call(name: str, *arguments: Any) -> Any:
        return client.execute_function(f"python_bench_peers:first_{name}", arguments, {}, {})

    while True:
        with contextlib.suppress(Exception):
            call("add", 1, 2)
            break
        time.sleep(0.1)

    def publish(arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            call("put", name, array)

    return {
        "add": lambda: call("add", 1, 2),
        "held": lambda: call("ones")[0],
        "fresh": lambda: call("ones")[0],
        "publish": Publication(publish),
        "attach": lambda: [call("get", f"layer.{n}")[0] for n in range(MEMBERS)],
    }


SERVERS = {
    "grpc": serve_grpc,
    "fastapi": serve_fastapi,
    "flight": serve_flight,
    "ray": serve_ray,
    "first": serve_first,
}
CALLERS = {
    "ours": ours,
    "grpc": call_grpc,
    "fastapi": call_fastapi,
    "flight": call_flight,
    "ray": call_ray,
    "torch": call_torch,
    "first": call_first,
}


def micros(call: Callable[[], Any]) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


def median_of_a_moment(call: Callable[[], Any]) -> float:
    times: list[float] = []
    while len(times) < 3 or sum(times) < 30e3:
        times.append(micros(call))
    return statistics.median(times)


def counted(call: Callable[[], Any], seconds: float) -> int:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        call()
        count += 1
    return count


def answer(operations: Operations, line: list[str]) -> float:
    if line[0] == "count":
        return (
            operations["count"](float(line[2]))
            if "count" in operations
            else counted(operations[line[1]], float(line[2]))
        )  # type: ignore[call-arg]
    if line[0] == "prepare":
        operations[line[1]].prepare()  # type: ignore[attr-defined]
        return 0
    if line[0] == "once":
        return micros(operations[line[1]])
    return median_of_a_moment(operations[line[0]])


def main(role: str, name: str, *address: str) -> None:
    if role == "serve":
        return SERVERS[name]()
    operations = CALLERS[name](" ".join(address))
    ready()
    for line in sys.stdin:
        try:
            print(answer(operations, line.split()), flush=True)
        except Exception as error:
            print(f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
    os._exit(0)  # threads of peers do not hold it up


if __name__ == "__main__":
    main(*sys.argv[1:])
