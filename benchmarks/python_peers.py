"""The peers in Python: torch.multiprocessing and Ray of the group "memory", Arrow Flight of "tensors".

    python python_peers.py torch|ray|flight BYTES

Prints "ready" once another process holds a tensor (array) of BYTES bytes, all ones. Then, for each line "first" or
"all" on standard input, gets the tensor from that process, reads its first element or sums all elements, and prints
how many microseconds that took. For flight the lines are "take", "give" and "both": the array goes to the server,
comes from it, or both.
"""

import os
import signal
import sys
import time


def serve(fetch, first, total, count):
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter_ns()
        value = fetch()
        seen = first(value) if line.strip() == "first" else total(value)
        micros = (time.perf_counter_ns() - start) / 1e3
        del value
        assert seen == (1 if line.strip() == "first" else count), seen
        print(micros, flush=True)


def hold_with_torch(count, questions, answers):
    import torch

    held = torch.ones(count, dtype=torch.int64).share_memory_()
    answers.put("held")
    while questions.get():
        answers.put(held)


def torch_peer(count):
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    questions, answers = context.SimpleQueue(), context.SimpleQueue()
    holder = context.Process(target=hold_with_torch, args=(count, questions, answers), daemon=True)
    holder.start()
    assert answers.get() == "held"

    def fetch():
        questions.put(True)
        return answers.get()

    serve(fetch, lambda x: x[0].item(), lambda x: x.sum().item(), count)


def ray_peer(count):
    import numpy
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=max(2 * 8 * count, 1 << 28),
             logging_level="ERROR")

    @ray.remote
    class Holder:
        def __init__(self):
            self.held = [ray.put(numpy.ones(count, dtype=numpy.int64))]

        def reference(self):
            return self.held

    holder = Holder.remote()

    def fetch():
        return ray.get(ray.get(holder.reference.remote())[0])

    fetch()
    serve(fetch, lambda x: int(x[0]), lambda x: int(x.sum()), count)


def flight_server(size, ports):
    import numpy
    import pyarrow
    import pyarrow.flight

    held = batch_of(size)

    class Server(pyarrow.flight.FlightServerBase):
        def do_get(self, context, ticket):
            return pyarrow.flight.RecordBatchStream(pyarrow.Table.from_batches([held]))

        def do_put(self, context, descriptor, reader, writer):
            seen = sum(chunk.data.num_rows for chunk in reader)
            assert seen == size, seen

    server = Server("grpc://127.0.0.1:0")
    ports.put(server.port)
    server.serve()


def batch_of(size):
    import numpy
    import pyarrow

    return pyarrow.record_batch([pyarrow.array(numpy.arange(size, dtype=numpy.uint8))], names=["x"])


def flight_peer(size):
    import multiprocessing

    import pyarrow.flight

    context = multiprocessing.get_context("spawn")
    ports = context.SimpleQueue()
    context.Process(target=flight_server, args=(size, ports), daemon=True).start()
    client = pyarrow.flight.connect(f"grpc://127.0.0.1:{ports.get()}")
    sent = batch_of(size)

    def take():
        writer, _ = client.do_put(pyarrow.flight.FlightDescriptor.for_path("x"), sent.schema)
        writer.write_batch(sent)
        writer.close()

    def give():
        got = sum(chunk.data.num_rows for chunk in client.do_get(pyarrow.flight.Ticket(b"x")))
        assert got == size, got

    ways = {"take": [take], "give": [give], "both": [take, give]}
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter_ns()
        for way in ways[line.strip()]:
            way()
        print((time.perf_counter_ns() - start) / 1e3, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    if sys.argv[1] == "flight":
        flight_peer(int(sys.argv[2]))
    else:
        {"torch": torch_peer, "ray": ray_peer}[sys.argv[1]](int(sys.argv[2]) // 8)
