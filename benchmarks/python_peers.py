"""The peers in Python of the group "memory": torch.multiprocessing and Ray.

    python python_peers.py torch|ray BYTES

Prints "ready" once another process holds a tensor (array) of so many bytes, all ones. Then, for each line "first" or "all" on standard
input: has it handed over, reads its first element or the sum of all, and prints how many microseconds that took.
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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    {"torch": torch_peer, "ray": ray_peer}[sys.argv[1]](int(sys.argv[2]) // 8)
