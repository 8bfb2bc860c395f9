"""Deployments, names and the tensor transport on a Ray cluster of one node."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import numpy
import pytest
from conftest import HERE, until
from ports import free_port

from shared_tensor import Client, SharedTensorProvider, errors

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")

import ray_functions  # noqa: E402

import shared_tensor.ray as fleet  # noqa: E402
from shared_tensor.ray import _transport  # noqa: E402

pytestmark = pytest.mark.heavy


METRICS = free_port()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    fleet.register_tensor_transport()
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=200 << 20,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
        _metrics_export_port=METRICS,
    )
    yield
    fleet.shutdown()
    ray.shutdown()


@pytest.fixture(scope="module")
def maths(cluster: None) -> Iterator[fleet.Handle]:
    made = ray_functions.provider.deploy(replicas=2, num_cpus=0.1, workers=4)
    yield made
    assert fleet.delete(made.name)


# ---- deployments


def test_replicas_of_the_node_take_turns_and_share_memory(maths: fleet.Handle) -> None:
    assert [replica.near for replica in maths.replicas()] == [True, True]
    assert len({maths.pid() for _ in range(10)}) == 2
    handle = maths.options(receipt=True)
    x = numpy.ones(1 << 20, dtype=numpy.float32)
    assert (handle.double(x) == 2).all()
    assert handle.last_receipt is not None
    assert [transport for transport, _, _ in handle.last_receipt.transports] == ["shm"]
    assert maths.last_receipt is None


def test_a_handle_makes_tasks_streams_and_typed_functions(maths: fleet.Handle) -> None:
    assert maths.submit("pid").result(30) in {maths.pid() for _ in range(10)}
    assert list(maths.stream("count", 3)) == [0, 1, 2]
    double = maths.function(ray_functions.double.__wrapped__)  # type: ignore[attr-defined]
    assert double(numpy.ones(2)).tolist() == [2, 2]
    with pytest.raises(TypeError):
        double()


def test_errors_of_functions_are_not_repeated(maths: fleet.Handle) -> None:
    with pytest.raises(errors.FunctionFailed, match="wrong"):
        maths.fail()
    with pytest.raises(errors.MethodNotFound):
        maths.nothing()
    with pytest.raises(errors.DeadlineExceeded):
        maths.options(timeout=0.2).pid(5)


def test_handles_go_to_tasks_and_are_found_by_name(maths: fleet.Handle) -> None:
    pids = {maths.pid() for _ in range(10)}

    @ray.remote
    def call(handle: fleet.Handle) -> list[int]:
        import shared_tensor.ray as fleet

        return [handle.pid(), fleet.handle("maths").pid()]

    assert set(ray.get(call.remote(maths))) <= pids
    again = pickle.loads(pickle.dumps(maths.options(timeout=7.0)))
    assert again._options["timeout"] == 7.0 and again.name == "maths"


def test_a_call_goes_on_when_its_replica_is_killed(maths: fleet.Handle, tmp_path: pathlib.Path) -> None:
    ledger = str(tmp_path / "ledger")
    maths = maths.options(timeout=120)  # a replica that starts again imports ray
    before = {maths.pid() for _ in range(10)}
    for round in range(6):  # each one lets the call on one of the replicas run when it is killed
        victim = maths.pid()
        os.kill(victim, signal.SIGKILL)
        assert maths.pid(0.05) != victim
        until(lambda pid=victim: not pathlib.Path(f"/proc/{pid}").exists())  # else it may take what must not repeat
        assert maths.enter(ledger, f"after {round}") != victim
    after = until(lambda: len(found := {maths.pid() for _ in range(10)}) == 2 and found)
    assert not after & before
    assert pathlib.Path(ledger).read_text().split("\n")[:-1] == [f"after {round}" for round in range(6)]


def test_a_call_that_may_have_run_is_repeated_only_if_that_does_no_harm(
    maths: fleet.Handle, tmp_path: pathlib.Path
) -> None:
    import threading

    maths = maths.options(timeout=120)
    until(lambda: len({maths.pid() for _ in range(10)}) == 2)
    ledger = tmp_path / "ledger"

    def kill_the_running() -> None:
        until(ledger.exists)
        pids = {maths.pid() for _ in range(10)}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_running)
    killer.start()
    with pytest.raises(errors.TransportFailure) as caught:
        maths.enter(str(ledger), "once", 20)
    killer.join()
    assert caught.value.may_have_run
    assert ledger.read_text() == "once\n"
    victims = {maths.pid() for _ in range(10)}
    timer = threading.Timer(1, lambda: [os.kill(pid, signal.SIGKILL) for pid in victims])
    timer.start()
    assert maths.pid(10) not in victims
    timer.join()


def test_a_deployment_is_scaled_and_ended(tmp_path: pathlib.Path) -> None:
    made = ray_functions.provider.deploy(replicas=1, name="scaled", num_cpus=0.1)
    assert len(made.replicas()) == 1
    fleet.scale(made, 3)
    assert len(made.replicas()) == 3
    assert len({made.pid() for _ in range(12)}) == 3
    fleet.scale(made, 1)
    until(lambda: len(made.replicas()) == 1)
    assert len({made.pid() for _ in range(12)}) == 1
    with pytest.raises(ValueError, match="0 or more"):
        fleet.scale(made, -1)
    with pytest.raises(ValueError, match="was not made by deploy"):
        fleet.scale(fleet.handle("scaled"), 2)
    with pytest.raises(ValueError, match="there is a deployment"):
        ray_functions.provider.deploy(name="scaled")
    assert fleet.delete("scaled")
    assert not fleet.delete("scaled")
    again = ray_functions.provider.deploy(name="scaled", num_cpus=0.1)
    assert len(again.replicas()) == 1
    assert fleet.delete("scaled")
    with pytest.raises((errors.DeadlineExceeded, errors.TransportFailure)):
        made.options(timeout=1.0).pid()


def test_functions_of_the_main_program_are_sent() -> None:
    program = """
import numpy, ray
from shared_tensor import SharedTensorProvider
provider = SharedTensorProvider(name="notebook")
factor = 3
@provider.share()
def scale(x: numpy.ndarray) -> numpy.ndarray:
    return x * factor
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
handle = provider.deploy(num_cpus=0.1)
print(handle.scale(numpy.ones(3)).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}
    )
    assert done.stdout == "[3.0, 3.0, 3.0]\n", done.stderr


def test_a_deployment_that_failed_leaves_its_name_free(cluster: None) -> None:
    for _ in range(2):
        with pytest.raises(ray.exceptions.RayActorError, match="bogus"):
            ray_functions.provider.deploy(name="failed", num_cpus=0.1, bogus=3)


def test_what_cannot_be_deployed_is_said() -> None:
    with pytest.raises(ValueError, match="name="):
        SharedTensorProvider().deploy()
    with pytest.raises(errors.DeadlineExceeded, match="absent"):
        fleet.handle("absent").options(timeout=0.3).call("x")


# ---- names


def test_versions_are_those_of_the_cluster() -> None:
    names = fleet.names(framework="numpy")
    first = names.publish("w", {"a": numpy.zeros(5), "b": numpy.ones(300_000)}, metadata={"step": "1"})
    assert (first.version, names.versions()["w"]) == (1, 1)
    second = names.publish("w", {"a": numpy.ones(5)}, base=1)
    assert second.version == 2
    read = names.get("w")
    assert (read.version, read.metadata, read["a"][0], read["b"][0]) == (2, {"step": "1"}, 1, 1)
    assert names.get("w/a").tensor.tolist() == [1] * 5
    for wrong in ({"if_version": 1}, {"base": 1}):
        with pytest.raises(errors.InvalidParams, match="2, the version now"):
            names.publish("w", {"a": numpy.ones(5)}, **wrong)  # type: ignore[arg-type]
    assert names.publish("w", {"a": numpy.ones(5)}, if_version=2).version == 3
    with pytest.raises(TypeError):
        names.publish("w", {"a": "text"}, if_version=3)
    assert names.publish("w", numpy.arange(3), if_version=3).version == 5  # the failed one had 4
    assert names.get("w").tensor.tolist() == [0, 1, 2]
    assert names.watch("w", 3, timeout=5) == 5
    assert names.remove("w")
    until(lambda: not names.versions("w"))
    assert not names.remove("w")
    with pytest.raises(errors.UnknownOrExpired, match="no node of the cluster"):
        names.get("w")
    assert names.publish("w", numpy.arange(3), if_version=0).version == 6
    with pytest.raises(errors.InvalidParams, match="if_version: expected nothing beside base"):
        names.publish("w", {"a": numpy.ones(5)}, base=6, if_version=999)


@pytest.mark.parametrize("has_sent", [False, True])
def test_a_publisher_that_dies_does_not_keep_others_from_publishing(has_sent: bool) -> None:
    name = f"claimed-{has_sent}"
    names = fleet.names(framework="numpy")
    first = names.publish(name, {"a": numpy.ones(3)}).version

    @ray.remote(num_cpus=0.1, max_retries=0)
    def die() -> None:
        from shared_tensor import NamedTensors

        own = fleet.names()

        def send(version: int) -> None:
            if has_sent:
                NamedTensors.publish(own, name, {"a": numpy.zeros(3)}, version=version)
            os.kill(os.getpid(), signal.SIGKILL)

        own._publish(send, name, None, first)  # type: ignore[arg-type]

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(die.remote())

    def published() -> int:
        try:
            return names.publish(name, {"b": numpy.ones(3)}, base=names.versions()[name]).version
        except errors.InvalidParams:
            return 0

    assert until(published) == first + 2
    assert names.get(name)["a"].tolist() == ([0] * 3 if has_sent else [1] * 3)


def test_a_file_is_published(tmp_path: pathlib.Path) -> None:
    names = fleet.names(framework="numpy")
    names.publish("saved", {"a": numpy.arange(4.0)})
    names.get("saved").save(tmp_path / "saved.safetensors")
    assert names.publish_file("loaded", tmp_path / "saved.safetensors").version == 1
    assert names.get("loaded")["a"].tolist() == [0, 1, 2, 3]


def test_a_model_is_attached_in_another_process() -> None:
    model = torch.nn.Linear(4, 2)
    fleet.publish("linear", model.state_dict())

    @ray.remote(num_cpus=0.1)
    class Engine:
        def __init__(self) -> None:
            import torch

            import shared_tensor.ray as fleet

            self.model = torch.nn.Linear(4, 2, device="meta")
            self.attached = fleet.attach(self.model, "linear")
            self.attached.watch()

        def run(self) -> tuple[int, list[float]]:
            import torch

            return self.attached.version, self.model(torch.ones(4)).tolist()

    engine = Engine.remote()
    assert ray.get(engine.run.remote()) == (1, model(torch.ones(4)).tolist())
    with torch.no_grad():
        model.weight.add_(1)
    fleet.publish("linear", model.state_dict())
    until(lambda: ray.get(engine.run.remote()) == (2, model(torch.ones(4)).tolist()))


def test_the_servers_of_the_cluster_have_a_token() -> None:
    fleet.client()
    node = ray.get_actor(f"node-{ray.get_runtime_context().get_node_id()}", "shared_tensor")
    place = ray.get(node.place.remote())
    for token in (None, "wrong" * 8):
        with pytest.raises(errors.NotAuthorised):
            Client(place.url, token, local_socket="none").call("node.versions", "")


def test_a_client_goes_on_when_the_server_of_its_node_was_killed() -> None:
    names = fleet.names(framework="numpy")
    names.publish("short", numpy.arange(3))
    actor = ray.get_actor(f"node-{ray.get_runtime_context().get_node_id()}", "shared_tensor")
    ray.kill(actor, no_restart=False)

    def is_gone() -> bool:
        try:
            names.get("short")
        except errors.UnknownOrExpired:
            return True
        except errors.TransportFailure:
            pass
        return False

    until(is_gone)
    assert names.publish("short", numpy.arange(3)).version == 2


def test_metrics_are_among_those_of_ray(maths: fleet.Handle) -> None:
    maths.pid()

    def found() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return False
        calls = [line for line in lines if "shared_tensor_calls_total" in line and 'function="pid"' in line]
        return any('server="maths"' in line and float(line.rpartition(" ")[2]) > 0 for line in calls)

    until(found)


# ---- the tensor transport


def test_actors_pass_tensors_to_each_other() -> None:
    @ray.remote(num_cpus=0.1, enable_tensor_transport=True)
    class Actor:
        @ray.method(tensor_transport="shared_tensor")
        def make(self, rows: int) -> dict[str, object]:
            import torch

            return {"a": torch.arange(rows * 1000).reshape(rows, 1000), "b": [torch.ones(3), "text"]}

        def sums(self, value: dict[str, object]) -> list[float]:
            return [float(value["a"].sum()), float(value["b"][0].sum()), value["b"][1]]  # type: ignore[attr-defined,index]

        def names(self) -> int:
            from shared_tensor.ray import _transport

            return len(_transport._source().names.list())

    source, sink = Actor.remote(), Actor.remote()
    for rows in (1, 700):
        made = source.make.remote(rows)
        assert ray.get(sink.sums.remote(made)) == [sum(range(rows * 1000)), 3.0, "text"]
        assert ray.get(sink.sums.remote(made)) == [sum(range(rows * 1000)), 3.0, "text"]
        assert ray.get(source.names.remote()) == 1
        del made
        until(lambda: ray.get(source.names.remote()) == 0)


def test_tensors_go_to_the_device_that_they_had() -> None:
    transport = _transport.SharedTensorTransport()
    meta = transport.extract_tensor_transport_metadata("object", [torch.ones(3)])
    (received,) = transport.recv_multiple_tensors("object", meta, transport.get_communicator_metadata(None, None))
    assert received.tolist() == [1] * 3
    meta.tensor_device = "meta"  # in place of a GPU
    (received,) = transport.recv_multiple_tensors("object", meta, transport.get_communicator_metadata(None, None))
    assert received.device.type == "meta"
    transport.garbage_collect("object", meta, [])
    assert not _transport._source().names.list()
    _transport._source()._serving.stop()
    _transport._SOURCE = None


# ---- the documentation


def test_the_examples_of_the_page_run() -> None:
    page = HERE.parents[1] / "docs/ray.md"
    names: dict[str, object] = {"__name__": "__main__"}
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(example, str(page), "exec"), names)
    assert fleet.delete("texts")
