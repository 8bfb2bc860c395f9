"""The program of test_ray_nodes.py, on the head of a cluster of three nodes. Asks for the death of the last node."""

from __future__ import annotations

import collections
import pathlib
import sys
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import numpy  # noqa: E402
import ray  # noqa: E402
import ray_functions  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

import shared_tensor.ray as fleet  # noqa: E402
from shared_tensor import errors  # noqa: E402
from shared_tensor.ray import _directory  # noqa: E402

ADDRESS, LEDGER = sys.argv[1:]
RUN_FOR = 14.0
KILL_AFTER = 4.0


def until(found: Any) -> Any:
    deadline = time.monotonic() + 60
    while not (answer := found()):
        assert time.monotonic() < deadline, "not within 60 s"
        time.sleep(0.1)
    return answer


def on(node: str, soft: bool = False) -> dict[str, Any]:
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=soft)}


def whole(weights: Any) -> int:
    """The version of a set whose members all have the value of its metadata."""
    values = {float(weights[member][i]) for member in weights for i in (0, -1)}
    assert values == {float(weights.metadata["value"])}, (weights, values)
    return int(weights.version)


class Calls(threading.Thread):
    """Calls functions one after the other, and counts how they end."""

    def __init__(self, handle: fleet.Handle, word: str) -> None:
        super().__init__()
        self.handle, self.word = handle, word
        self.done: list[int] = []
        self.failed: list[tuple[int, Exception]] = []
        self.runs = 0
        self.end = time.monotonic() + RUN_FOR

    def run(self) -> None:
        while time.monotonic() < self.end:
            self.runs += 1
            try:
                self.call(self.runs)
                self.done.append(self.runs)
            except errors.RpcError as error:
                self.failed.append((self.runs, error))

    def call(self, i: int) -> None:
        result = self.handle.double(numpy.full(2000, i))
        assert result.tolist() == [2 * i] * 2000


class Entries(Calls):
    """Of a function that must not run twice."""

    def call(self, i: int) -> None:
        self.handle.enter(LEDGER, f"{self.word}{i}", 0.002)


class Publications(threading.Thread):
    def __init__(self, names: fleet.ClusterNames) -> None:
        super().__init__()
        self.names = names
        self.versions: list[int] = []
        self.end = time.monotonic() + RUN_FOR

    def run(self) -> None:
        while time.monotonic() < self.end:
            value = len(self.versions)
            content = {f"m{i}": numpy.full(50_000, value, dtype=numpy.float32) for i in range(6)}
            self.versions.append(self.names.publish("policy", content, metadata={"value": str(value)}).version)
            time.sleep(0.02)


@ray.remote(num_cpus=0.1)
class Reader:
    """Reads a name again and again."""

    def __init__(self) -> None:
        self.names = fleet.names(framework="numpy")

    def follow(self, seconds: float) -> list[int]:
        end = time.monotonic() + seconds
        seen: list[int] = []
        while time.monotonic() < end:
            seen.append(whole(self.names.get("policy")))
        return seen

    def publish_doomed(self, value: int) -> int:
        content = {f"m{i}": numpy.full(50_000, value, dtype=numpy.float32) for i in range(6)}
        return self.names.publish("doomed", content, metadata={"value": str(value)}).version

    def read_doomed(self) -> int:
        return whole(self.names.get("doomed"))

    def transport(self, handle: fleet.Handle) -> str:
        handle.double(numpy.ones(100_000))
        assert handle.last_receipt is not None
        return handle.last_receipt.transports[0][0]


ray.init(
    address=ADDRESS,
    logging_level="ERROR",
    log_to_driver=False,
    runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
)
until(lambda: sum(node["Alive"] for node in ray.nodes()) == 3)
by_address = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes()}
head, second, victim = (by_address[address] for address in sorted(by_address))
_directory.directory(**on(victim, soft=True))  # it dies too

handle = ray_functions.provider.deploy(replicas=3, num_cpus=0.5, workers=4)
assert {replica.node for replica in handle.replicas()} == {head, second, victim}, handle.replicas()
pair = ray_functions.provider.deploy(
    name="pair", replicas=2, num_cpus=0.5, workers=4, resources={"not_head": 1}, actor_options={"max_restarts": 0}
)
assert {replica.node for replica in pair.replicas()} == {second, victim}, pair.replicas()
far = ray_functions.provider.deploy(name="far", num_cpus=0.1, actor_options=on(second))
names = fleet.names(framework="numpy")
readers = [Reader.options(**on(node)).remote() for node in (second, victim)]  # type: ignore[attr-defined]
with_receipt = handle.options(receipt=True), far.options(receipt=True)
head_reader = Reader.options(**on(head)).remote()  # type: ignore[attr-defined]
transports = [ray.get(head_reader.transport.remote(one)) for one in with_receipt]
assert transports == ["shm", "body"], transports
assert ray.get(readers[0].transport.remote(with_receipt[1])) == "shm"

assert ray.get(readers[1].publish_doomed.remote(5)) == 1
assert ray.get(readers[0].read_doomed.remote()) == 1

publications = Publications(names)
publications.start()
until(lambda: publications.versions)
calls = [Calls(one, "") for one in (handle, pair, pair)] + [Entries(pair, word) for word in "abc"]
entries = [one for one in calls if isinstance(one, Entries)]
for one in calls:
    one.start()
followed = [reader.follow.remote(RUN_FOR) for reader in readers]
time.sleep(KILL_AFTER)
print("kill the node 2", flush=True)
for one in (*calls, publications):
    one.join()

for one in calls:
    print(type(one).__name__, one.word, "runs", one.runs, "failed", len(one.failed), flush=True)
    assert len(one.done) + len(one.failed) == one.runs > 10
    if one not in entries:
        assert not one.failed, one.failed
written = collections.Counter(pathlib.Path(LEDGER).read_text().split())
assert set(written.values()) == {1}, "a call that must not be repeated ran twice"
for one in entries:
    assert all(isinstance(error, errors.TransportFailure) and error.may_have_run for _, error in one.failed), one.failed
    assert all(written[f"{one.word}{i}"] == 1 for i in one.done), "a call got an answer and did not run"

assert publications.versions == sorted(set(publications.versions))
seen = ray.get(followed[0])
print("versions", len(publications.versions), "read", len(seen), "different", len(set(seen)), flush=True)
assert seen == sorted(seen) and len(set(seen)) > 3
assert ray.get(readers[0].follow.remote(0.2))[-1] == publications.versions[-1]
try:
    ray.get(followed[1])
    raise AssertionError("the node lives")
except ray.exceptions.RayError:
    pass

# The publisher of "doomed" is gone; the copy of another node stays, and a new version is above it.
assert whole(names.get("doomed")) == 1
assert names.publish("doomed", {"m0": numpy.zeros(5)}, metadata={"value": "0"}).version > 1
assert {handle.pid() for _ in range(20)} and len(handle.replicas()) >= 2
for name in ("far", "pair", "maths"):
    fleet.delete(name)
print("all is well", flush=True)
