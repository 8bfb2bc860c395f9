"""Named tensors and the weights of models, between processes."""

from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy
import pytest
from conftest import Process, until

import shared_tensor
from shared_tensor import NamedTensors, errors
from shared_tensor.named_tensors import Published

SET = {"a": numpy.arange(6.0).reshape(2, 3), "b": numpy.zeros((), numpy.int64)}


@pytest.fixture(scope="module")
def provider(provider_of_tensors: Process) -> Process:
    return provider_of_tensors


@pytest.fixture
def names(client: shared_tensor.Client) -> Iterator[NamedTensors]:
    names = NamedTensors(client.options(framework="numpy"))
    yield names
    for left in names.list():
        names.remove(left.name)


def test_a_tensor_is_published_read_and_removed(names: NamedTensors) -> None:
    made = names.publish("step", numpy.array([1.0, 2.0]), metadata={"by": "me"})
    assert made == Published("step", made.version, made.bytes) and made.bytes >= 16
    step = names.get("step")
    assert step.tensor.tolist() == [1.0, 2.0] and step.metadata == {"by": "me"} and len(step) == 0
    assert names.remove("step") and not names.remove("step")
    with pytest.raises(errors.UnknownOrExpired):
        names.get("step")
    assert step.tensor.tolist() == [1.0, 2.0], "what was read stays"


def test_a_set_is_one_version(names: NamedTensors) -> None:
    first = names.publish("set", SET)
    read = names.get("set")
    assert sorted(read) == ["a", "b"] and read["a"].tolist() == SET["a"].tolist() and read["b"] == 0
    assert read.version == first.version
    second = names.publish("set", {"a": numpy.ones(1)}, if_version=first.version)
    assert second.version > first.version
    assert sorted(names.get("set")) == ["a"] and read["a"].shape == (2, 3)
    with pytest.raises(errors.InvalidParams):
        names.publish("set", SET, if_version=first.version)
    with pytest.raises(TypeError, match="take them by their names"):
        read.tensor
    with pytest.raises(KeyError):
        read["c"]
    for wrong, text in (
        ({"a": SET["a"], "b": "text"}, "set: these members are not tensors: b"),
        ({1: SET["a"]}, "set: names of members must be str, not 1"),
        ([1.0], "set: a list is no tensor: give a tensor, or a dict of tensors"),
        (types.SimpleNamespace(state_dict=dict), r"set: a SimpleNamespace is no tensor: publish its state_dict\(\)"),
    ):
        with pytest.raises(TypeError, match=text):
            names.publish("set", wrong)


FLOATS = 1 << 18  # 1 MiB


def test_the_progress_of_a_transfer_to_another_host(
    client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_tensor.Client(client.url, local_socket="none", framework="numpy") as far:
        names = NamedTensors(far)
        told: list[tuple[int, int]] = []
        array = numpy.ones(FLOATS * 8, numpy.float32)
        made = names.publish("far", array, progress=lambda *numbers: told.append(numbers))
        assert made.transport == "upload" and told == sorted(told) and len(told) > 2
        assert told[-1] == (array.nbytes, array.nbytes)
        told.clear()
        read = names.get("far", progress=lambda *numbers: told.append(numbers))
        assert numpy.array_equal(read.tensor, array) and told[-1][0] == told[-1][1] > array.nbytes
        with pytest.raises(ZeroDivisionError):
            names.get("far", progress=lambda arrived, size: 1 // 0)

        class Bar:
            total = n = 0
            closed: ClassVar[list[int]] = []

            def __init__(self, **options: Any) -> None: ...
            def update(self, more: int) -> None:
                self.n += more

            def close(self) -> None:
                self.closed.append(self.n)
                assert self.n == self.total

        monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
        names.publish("far", array, progress=True)
        names.get("far", progress=True)
        assert len(Bar.closed) == 2 and Bar.closed[0] == array.nbytes
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        assert names.get("far", progress=True).version > made.version, "without tqdm there is no bar"
        assert names.remove("far")


def test_large_tensors_are_copied_once(names: NamedTensors) -> None:
    arrays = {"a": numpy.full(FLOATS, 3, numpy.float32), "b": numpy.full((2, 3), 3, numpy.float32)}
    made = names.publish("weights", arrays)
    assert made.copied == 4 * FLOATS + 24 and made.transport == "shm"
    arrays["a"][:] = 4
    one = names.publish("one", arrays["a"])
    assert one.copied == 4 * FLOATS
    assert (names.get("weights")["a"] == 3).all() and (names.get("one").tensor == 4).all()


def test_tensors_made_in_shared_memory_are_published_without_a_copy(names: NamedTensors) -> None:
    forms = {"a": numpy.zeros((2, FLOATS), numpy.float32), "b": ((3,), "float16"), "none": ((0,), "int64")}
    made = names.empty_set(forms)
    assert {name: (array.shape, str(array.dtype)) for name, array in made.items()} == {
        "a": ((2, FLOATS), "float32"),
        "b": ((3,), "float16"),
        "none": ((0,), "int64"),
    }
    for array in made.values():
        array[...] = 3
    published = names.publish("weights", made)
    assert published.copied == 0 and published.transport == "shm"
    made["a"][:] = 4
    assert (names.get("weights")["a"] == 3).all() and (names.get("weights")["b"] == 3).all()
    assert names.publish("weights", made).copied == 8 * FLOATS + 6, "what was written is this process's own"
    assert (names.get("weights")["a"] == 4).all()
    with pytest.raises(ValueError, match="float33"):
        names.empty_set({"a": ((1,), "float33")})


def test_a_tensor_of_empty_is_published_without_a_copy(client: shared_tensor.Client, names: NamedTensors) -> None:
    array = client.options(framework="numpy").empty([FLOATS])
    array[:] = 3
    assert NamedTensors(client).publish("one", array).copied == 0
    array[:] = 4
    assert (names.get("one").tensor == 3).all() and (array == 4).all()


def test_what_was_published_outlives_its_publisher(client: shared_tensor.Client, names: NamedTensors) -> None:
    program = (
        "import numpy, os, signal, sys, shared_tensor\n"
        "names = shared_tensor.NamedTensors(shared_tensor.Client(sys.argv[1], framework='numpy'))\n"
        "born = names.empty_set({'a': ((1 << 18,), 'float32')})\n"
        "born['a'][:] = 5\n"
        "assert names.publish('born', born).copied == 0\n"
        "names.publish('copied', {'a': numpy.full(1 << 18, 5, numpy.float32)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, client.url]).returncode == -9
    for name in ("born", "copied"):
        assert (names.get(name)["a"] == 5).all()


def test_only_changed_tensors_are_published(client: shared_tensor.Client, names: NamedTensors) -> None:
    weights = {f"layer.{i}": numpy.full(1 << 15, i, numpy.float32) for i in range(20)}
    first = names.publish("weights", weights, metadata={"step": "1"})
    read = names.get("weights")
    second = names.publish("weights", {"layer.3": numpy.full(1 << 15, -3, numpy.float32)}, base=first.version)
    assert second.version == first.version + 1 and second.copied <= 2 << 17 and second.bytes < 21.5 * (1 << 17)
    now = names.get("weights", previous=read)
    assert len(now) == 20 and now["layer.3"][0] == -3 and read["layer.3"][0] == 3 and now.metadata == {"step": "1"}
    assert now["layer.4"].ctypes.data == read["layer.4"].ctypes.data
    read["layer.4"][0] = 7
    assert names.get("weights", previous=now)["layer.4"][0] == 4, "what this process wrote is not taken"
    with pytest.raises(errors.InvalidParams) as caught:
        names.publish("weights", {"layer.3": numpy.ones(1)}, base=first.version)
    assert caught.value.data["version"] == second.version
    with pytest.raises(ValueError, match="leave out version and members"):
        names.get("weights", previous=now, members=["layer.3"])
    with pytest.raises(ValueError, match="leave out members"):
        names.get("weights", members=["layer.3"], swarm=True)
    with shared_tensor.Client(client.url, local_socket="none", framework="numpy") as far:
        made = NamedTensors(far).publish("weights", {"new": numpy.ones(2)}, base=second.version)
        assert made.version == second.version + 1
    assert len(names.get("weights", previous=now)) == 21


def test_another_host_fetches_only_what_differs(client: shared_tensor.Client, names: NamedTensors) -> None:
    weights = {f"layer.{i}": numpy.full(1 << 17, i, numpy.float32) for i in range(20)}
    names.publish("weights", weights)
    with shared_tensor.Client(client.url, local_socket="none", framework="numpy") as far:
        read = NamedTensors(far).get("weights")
        weights["layer.3"][5] = -3
        names.publish("weights", weights)
        told: list[tuple[int, int]] = []
        now = NamedTensors(far).get("weights", previous=read, progress=lambda *numbers: told.append(numbers))
        assert told[-1][0] - told[-2][0] == 1 << 16, "one block is fetched after the first request"
        assert all(numpy.array_equal(now[name], tensor) for name, tensor in weights.items())


def test_names_that_are_not_valid_unicode_are_rejected(names: NamedTensors) -> None:
    half, one = "a\ud800", numpy.ones(1)
    for publish in (
        lambda: names.publish("set", {half: one}),
        lambda: names.publish(half, one),
        lambda: names.empty_set({half: one}),
    ):
        with pytest.raises(ValueError, match=r"'a\\ud800' is not valid Unicode"):
            publish()


def test_part_of_a_set_and_the_list(names: NamedTensors) -> None:
    names.publish("set", SET)
    names.publish("one", SET["a"])
    assert list(names.get("set", members=["b"])) == ["b"]
    with pytest.raises(errors.UnknownOrExpired):
        names.get("set", members=["b"], version=names.get("set").version + 1)
    assert names.get("set/a").tensor.tolist() == SET["a"].tolist()
    assert [(info.name, info.members, info.shape) for info in names.list()] == [
        ("one", None, (2, 3)),
        ("set", 2, None),
    ]
    assert [info.name for info in names.list("s")] == ["set"]


def test_what_one_reader_writes_no_other_sees(names: NamedTensors) -> None:
    names.publish("one", numpy.zeros(1 << 16))
    one, other = names.get("one").tensor, names.get("one").tensor
    one[:] = 1
    assert not other.any() and not names.get("one").tensor.any()


def test_watch_waits_for_the_next_version(names: NamedTensors) -> None:
    assert names.watch("later", timeout=0.05) is None
    seen: list[int | None] = []
    waiting = threading.Thread(target=lambda: seen.append(names.watch("later", timeout=20)))
    waiting.start()
    made = names.publish("later", numpy.ones(1))
    waiting.join()
    assert seen == [made.version]
    assert names.watch("later", made.version, timeout=0.05) is None


READS = """
import os, sys
from shared_tensor import Client, NamedTensors
weights = NamedTensors(Client(sys.argv[1], framework="numpy")).get("read")
if os.fork() == 0:
    print("reads", flush=True)
    sys.stdin.read()
    print(set(weights["x"].tolist()), flush=True)
os._exit(0)
"""


def test_what_a_reader_left_to_a_child_stays_while_new_versions_come(
    client: shared_tensor.Client, names: NamedTensors
) -> None:
    readers = []
    for version in range(1, 7):
        names.publish("read", {"x": numpy.full(3 << 20, version, numpy.float32)})  # enough to go into reused memory
        for _ in range(1 + version % 2):
            reader = subprocess.Popen(
                [sys.executable, "-c", READS, client.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert reader.stdout is not None and reader.stdout.readline() == "reads\n"
            assert reader.wait() == 0
            readers.append((reader, version))
        if version % 2 == 0:  # so that memory of older versions can be used again
            reader, of = readers.pop()
            assert reader.communicate()[0] == f"{{{of}.0}}\n"
    for reader, version in readers:
        assert reader.communicate()[0] == f"{{{version}.0}}\n"


ENDS = """
import builtins, sys, threading, time
from shared_tensor import Client, NamedTensors

class SlowEnd:
    def __del__(self, sleep=time.sleep):  # the interpreter has ended: threads get the GIL no more
        sleep(2)

builtins.slow_end = SlowEnd()
names, begins = NamedTensors(Client(sys.argv[1])), threading.Event()
threading.Thread(target=lambda: (begins.set(), names.watch("nothing", timeout=1)), daemon=True).start()
begins.wait()
print("ends")
"""


def test_a_program_may_end_while_a_thread_of_it_waits(client: shared_tensor.Client) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, client.url], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_a_file_is_published_and_saved(names: NamedTensors, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "set.safetensors"
    names.publish("set", SET, metadata={"format": "pt"})
    names.get("set").save(file)
    names.publish_file("again", file)
    again = names.get("again")
    assert again["a"].tolist() == SET["a"].tolist() and again.metadata == {"format": "pt"}
    with pytest.raises(RuntimeError, match=r"missing\.safetensors"):
        names.publish_file("again", tmp_path / "missing.safetensors")


def test_a_client_without_shared_memory_gets_the_same(client: shared_tensor.Client, names: NamedTensors) -> None:
    far = NamedTensors(shared_tensor.Client(client.url, local_socket="off", framework="numpy"))
    array = numpy.arange(1 << 20, dtype=numpy.float32)
    far.publish("far", {"x": array})
    assert numpy.array_equal(names.get("far")["x"], array)
    assert numpy.array_equal(far.get("far")["x"], array)


# ---- models


def make_model() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
        with pytest.raises(RuntimeError, match=r"attach\(\) needs torch 2\.1"):
            shared_tensor.attach(torch.nn.Linear(2, 2), "weights")
        pytest.skip("attach() needs torch 2.1")
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256)).eval()


def fill(model: Any, value: float) -> dict[str, Any]:
    return {name: tensor.detach().clone().fill_(value) for name, tensor in model.state_dict().items()}


READER = """
import json, sys, torch
from shared_tensor import Client, attach
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256)).eval()
attached = attach(model, "weights", client=Client(sys.argv[1]))
weight = model[0].weight
maps = [line for line in open("/proc/self/maps") if "memfd" in line]
ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
print(json.dumps({
    "sum": weight.sum().item(),
    "shared": any(begin <= weight.data_ptr() < end for begin, end in ranges),
    "grad": weight.requires_grad,
}))
"""


def test_another_process_attaches_a_model_without_a_copy(client: shared_tensor.Client, names: NamedTensors) -> None:
    names.publish("weights", fill(make_model(), 0.5))
    done = subprocess.run([sys.executable, "-c", READER, client.url], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"sum": 256 * 256 / 2, "shared": True, "grad": True}


def test_a_model_has_old_or_new_weights_but_never_both(client: shared_tensor.Client, names: NamedTensors) -> None:
    make_model()
    torch = sys.modules["torch"]

    class Both(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Parameter(torch.zeros(4))
            self.last = torch.nn.Parameter(torch.zeros(4))

        def forward(self) -> tuple[float, float]:
            first = self.first[0].item()
            threading.Event().wait(0.001)
            return first, self.last[0].item()

    both = Both()
    names.publish("weights", fill(both, 1))
    with shared_tensor.attach(both, "weights", client=client) as attached:
        attached.watch()
        seen = set()
        stop = threading.Event()

        def call() -> None:
            while not stop.is_set():
                seen.add(both())

        callers = [threading.Thread(target=call) for _ in range(3)]
        for caller in callers:
            caller.start()
        try:
            until(lambda: (1.0, 1.0) in seen)
            for value in range(2, 6):
                version = names.publish("weights", fill(both, value)).version
                while attached.version < version:
                    assert attached.error is None
                until(lambda value=value: (value, value) in seen)
        finally:
            stop.set()
            for caller in callers:
                caller.join()
    assert seen == {(float(value), float(value)) for value in range(1, 6)}
    assert both() == (5.0, 5.0)


def test_an_update_keeps_what_did_not_change(client: shared_tensor.Client, names: NamedTensors) -> None:
    model = make_model()
    torch = sys.modules["torch"]
    published = names.publish("weights", fill(model, 1))
    with shared_tensor.attach(model, "weights", client=client) as attached:
        weight = model[0].weight.data_ptr()
        published = names.publish("weights", {"0.bias": torch.full((256,), 2.0)}, base=published.version)
        assert attached.update() and model[0].weight.data_ptr() == weight
        assert model[0].bias[0] == 2 and model[0].weight[0, 0] == 1
        with torch.no_grad():
            model[0].weight[0, 0] = 5
        names.publish("weights", {"0.bias": torch.full((256,), 3.0)}, base=published.version)
        assert attached.update() and model[0].weight[0, 0] == 1, "an update brings the published weights"
        assert model[0].bias[0] == 3


def test_a_call_that_is_interrupted_leaves_the_model_usable(client: shared_tensor.Client, names: NamedTensors) -> None:
    make_model()
    torch = sys.modules["torch"]

    class Model(torch.nn.Linear):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, fails: bool = False) -> Any:
            if fails:
                raise KeyboardInterrupt
            return super().forward(x)

    model, x = Model(2, 2), torch.ones(1, 2)
    names.publish("weights", fill(model, 1))
    with shared_tensor.attach(model, "weights", client=client) as attached:
        with pytest.raises(KeyboardInterrupt):
            model(x, fails=True)
        names.publish("weights", fill(model, 2))
        update = threading.Thread(target=attached.update, daemon=True)
        update.start()
        update.join(10)
        assert not update.is_alive() and model(x).tolist() == [[6, 6]]
        assert copy.deepcopy(model)(x).tolist() == [[6, 6]]
    assert "forward" not in vars(model)


def test_attach_without_a_client_has_no_timeout(
    client: shared_tensor.Client, names: NamedTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    names.publish("weights", fill(model, 1))
    monkeypatch.setenv("SHARED_TENSOR_URL", client.url)
    assert shared_tensor.attach(model, "weights")._names._client._options.timeout is None


def test_weights_that_do_not_fit_change_nothing(client: shared_tensor.Client, names: NamedTensors) -> None:
    model = make_model()
    before = model[0].weight.clone()
    wanted = fill(model, 1)
    names.publish("weights", {**wanted, "more": wanted["0.weight"]})
    with pytest.raises(KeyError, match="1 unexpected"):
        shared_tensor.attach(model, "weights", client=client)
    names.publish("weights", {**wanted, "0.weight": wanted["0.bias"]})
    with pytest.raises(ValueError, match=r"0\.weight: the model has the shape"):
        shared_tensor.attach(model, "weights", client=client, strict=False)
    with pytest.raises(errors.UnknownOrExpired):
        shared_tensor.attach(model, "nothing", client=client)
    assert bool((model[0].weight == before).all())

    names.publish("weights", wanted)
    with shared_tensor.attach(model, "weights", client=client) as attached:
        good = attached.version
        attached.watch()
        names.publish("weights", {"0.weight": wanted["0.bias"]})
        while attached.error is None:
            pass
        assert isinstance(attached.error, KeyError) and attached.version == good
        newest = names.publish("weights", fill(model, 2)).version
        while attached.version != newest:
            pass
        assert bool((model[0].weight == 2).all())


def test_watch_tries_a_version_again_but_leaves_out_what_does_not_fit(
    client: shared_tensor.Client, names: NamedTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    names.publish("weights", fill(model, 1))
    with shared_tensor.attach(model, "weights", client=client) as attached:
        failures: list[Exception] = [TypeError("no such dtype"), errors.TransportFailure("the connection broke")]
        get = attached._names.get

        def fail_twice(*args: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return get(*args, **options)

        monkeypatch.setattr(attached._names, "get", fail_twice)
        attached.watch()
        names.publish("weights", fill(model, 2))
        until(lambda: not failures and isinstance(attached.error, TypeError))
        newest = names.publish("weights", fill(model, 3)).version
        until(lambda: attached.version == newest and attached.error is None)
