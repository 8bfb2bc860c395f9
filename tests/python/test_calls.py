"""Calls of Python functions in another process: values, errors, options, tasks, streams, batches."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import functions
import numpy
import pytest

import shared_tensor
from shared_tensor import errors


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "ü\n", [], [1, [2.5, None]], {}, {"a": {"b": [1]}}],
    ids=repr,
)
def test_values_come_back_as_they_went(client: shared_tensor.Client, value: Any) -> None:
    back = client.echo(value)
    assert back == value and type(back) is type(value)


def test_other_values_cross_as_their_plain_form(client: shared_tensor.Client) -> None:
    import enum
    import pathlib

    @dataclasses.dataclass
    class Point:
        x: int
        tags: tuple[str, ...]

    class Number(enum.IntEnum):
        TWO = 2

    assert client.echo(Point(1, ("a", "b"))) == {"x": 1, "tags": ["a", "b"]}
    assert client.echo([Number.TWO, pathlib.Path("/tmp"), {3}, b"abc"]) == [2, "/tmp", [3], "YWJj"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (object(), TypeError, "cannot be an argument"),
        ({1: 2}, TypeError, "has keys that are not str"),
        (2**64, OverflowError, "too big"),
        ("\ud800", UnicodeEncodeError, "surrogates"),
    ],
)
def test_a_value_that_cannot_cross_is_a_clear_error(
    client: shared_tensor.Client, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        client.echo(value)
    assert client.add(1, 2) == 3


def test_an_endless_value_is_an_error(client: shared_tensor.Client) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        client.echo(endless)


def test_arguments_by_position_by_name_and_both(client: shared_tensor.Client) -> None:
    assert client.add(1) == 2
    assert client.add(1, 2) == client.add(b=2, a=1) == client.add(1, b=2) == client.call("add", 1, b=2) == 3
    with pytest.raises(TypeError, match="multiple values for argument 'a'"):
        client.add(1, a=2)


def test_an_exception_of_the_function_reaches_its_caller(client: shared_tensor.Client) -> None:
    with pytest.raises(errors.FunctionFailed, match="ValueError: no such file") as raised:
        client.fail("no such file")
    error = raised.value
    assert (error.code, error.type_name, error.data["message"]) == (-32000, "ValueError", "no such file")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.data) == (type(error), str(error), error.data)
    shown = "".join(traceback.format_exception(error))
    if sys.version_info >= (3, 11):  # Python 3.10 keeps notes, but prints none
        assert "In the server:\nTraceback" in shown and "raise ValueError(text)" in shown
    assert "shared_tensor/_function.py" not in error.__notes__[0], "of the function's own code alone"
    with pytest.raises(errors.FunctionFailed) as deep:
        client.fall(200)
    assert deep.value.__notes__[0].endswith("RecursionError: no way out") and len(deep.value.__notes__[0]) < 4096


def test_an_unknown_function_and_a_server_that_is_not_there(client: shared_tensor.Client) -> None:
    with pytest.raises(errors.MethodNotFound):
        client.nothing_of_this_name()
    with pytest.raises(errors.TransportFailure, match=r"127\.0\.0\.1:1") as raised:
        shared_tensor.Client("http://127.0.0.1:1", retry=None).add(1)
    assert not raised.value.may_have_run
    assert isinstance(raised.value, ConnectionError)


def test_a_deadline_ends_the_call_and_the_function_learns_it(client: shared_tensor.Client) -> None:
    with pytest.raises(TimeoutError) as raised:
        client.options(timeout=0.2).steps(30)
    assert isinstance(raised.value, errors.DeadlineExceeded)
    assert client.has_ended(10)


def test_a_coroutine_of_a_call_that_is_over_is_cancelled(client: shared_tensor.Client) -> None:
    with pytest.raises(TimeoutError):
        client.options(timeout=0.2).long_nap()
    assert client.has_ended(10)
    assert client.nap(0.1) == "slept"


def test_callers_learn_signatures_and_texts(client: shared_tensor.Client) -> None:
    methods = {method["name"]: method for method in client.discover()["methods"]}
    add = methods["add"]
    assert add["summary"] == "The sum of two numbers."
    assert [(p["name"], p["required"], p["schema"].get("default")) for p in add["params"]] == [
        ("a", True, None),
        ("b", False, 1.0),
    ]
    assert methods["scale"]["params"][0]["schema"]["description"] == "float32, any shape"
    box = methods["area"]["params"][0]["schema"]
    assert box["required"] == ["height", "width"] and box["properties"]["label"] == {"type": "string"}
    assert client.info()["service"]["name"] == "functions"


def test_curl_calls_a_python_function(provider: Any) -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "add", "params": [2, 3]}).encode()
    sent = urllib.request.Request(f"{provider.url}/jsonrpc", request, {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent) as answer:
        assert json.load(answer)["result"] == 5


def test_a_stub_has_the_signature_of_a_function(client: shared_tensor.Client) -> None:
    def add(a: float, b: float = 1.0) -> float: ...

    remote = client.function(add)
    assert remote(2) == 3 and remote(b=4, a=1) == 5
    with pytest.raises(TypeError, match="missing a required argument"):
        remote()


def test_notebooks_see_what_there_is(client: shared_tensor.Client) -> None:
    shown = client._repr_html_()
    assert client.url in shown and "add(a: number, b: number = 1.0) -&gt; number" in shown
    receipts = client.options(receipt=True)
    receipts.add(1)
    assert receipts.last_receipt is not None and "bytes_copied" in receipts.last_receipt._repr_html_()
    task = client.submit("echo", "<b>")
    task.result()
    assert "completed" in task._repr_html_() and "echo" in task._repr_html_()
    nobody = shared_tensor.Client("http://127.0.0.1:1", retry=None)
    assert "Connection refused" in nobody._repr_html_()


def test_a_progress_bar_shows_a_task(client: shared_tensor.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, str]] = []

    class Bar:
        def __init__(self, desc: str, total: float, bar_format: str) -> None:
            assert desc == "steps" and total == 1

        def update(self, by: float) -> None:
            seen.append((by, ""))

        def set_postfix_str(self, text: str) -> None:
            seen.append((0, text))

        def close(self) -> None:
            seen.append((0, "closed"))

    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    assert client.submit("steps", 0.5).result(progress=True) == 10
    assert sum(by for by, _ in seen) == pytest.approx(1) and seen[-1][1] == "closed"
    assert any(text.startswith("step ") for _, text in seen)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert client.submit("steps", 0.01).result(progress=True) == 10, "without tqdm there is no bar"


class Echoes(Protocol):
    def send_back(self, x: bytes) -> bytes: ...
    def echo(self, value: dict[str, Any]) -> functions.Box: ...


class Functions(Echoes, Protocol):
    def scale(self, x: Any, factor: float = 2.0) -> numpy.ndarray: ...
    def add(self, a: float, b: float = 1.0) -> functions.Mode: ...
    def count(self, up_to: int) -> Any: ...


def test_a_stub_of_a_protocol_makes_the_types_of_its_hints(client: shared_tensor.Client) -> None:
    stub = client.options(receipt=True).stub(Functions)
    assert stub.send_back(b"\x00\xff") == b"\x00\xff"
    assert stub.echo({"width": 1, "height": 2}) == functions.Box(1.0, 2.0)
    assert isinstance(stub.scale(numpy.ones(2)), numpy.ndarray)
    with pytest.raises(errors.ResultMismatch, match="the result: expected one of 'fast', 'exact', got 3"):
        stub.add(2)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        stub.add(2, c=2)  # type: ignore[call-arg]


def test_options_make_another_client_and_leave_the_first(client: shared_tensor.Client) -> None:
    receipts = client.options(receipt=True)
    assert receipts.add(1) == 2 and client.last_receipt is None
    receipt = receipts.last_receipt
    assert receipt is not None and receipt.tries == 1 and receipt.retries == 0 and receipt.run is not None
    with pytest.raises(errors.FunctionFailed):
        receipts.fail("x")
    assert receipts.last_receipt is not receipt
    assert copy.copy(receipts).add(2) == 3


def test_a_result_that_stays_in_the_server_cannot_be_cached() -> None:
    class Model:
        pass

    def load() -> Model:
        return Model()

    load.__annotations__["return"] = Model
    provider = shared_tensor.SharedTensorProvider(execution_mode="server")
    with pytest.raises(ValueError, match=r"load: its result stays in the server.*singleton=True"):
        provider.share(cached=True)(load)


def test_a_cached_function_runs_once_for_equal_arguments(client: shared_tensor.Client) -> None:
    first = client.counted("a")
    assert client.counted("a") == first
    assert client.counted("b") == first + 1


def test_a_task_reports_its_progress_and_its_result(client: shared_tensor.Client) -> None:
    task = client.submit("steps", 1.0)
    seen: list[str] = []
    task.on_progress(lambda status: seen.append(status.message))
    assert task.result(timeout=30) == 10
    assert "step 9" in seen and task.status().state == "completed"
    assert [status.state for status in client.task(task.id)] == ["completed"]


def test_a_task_is_cancelled_and_its_function_learns_it(client: shared_tensor.Client) -> None:
    task = client.submit("steps", 60)
    with pytest.raises(TimeoutError, match="goes on in the server"):
        task.result(timeout=0.1)
    assert task.cancel().state == "cancelled"
    with pytest.raises(errors.Cancelled):
        task.result()
    assert client.has_ended(10)


def test_a_function_for_tasks_is_no_plain_call(client: shared_tensor.Client) -> None:
    with pytest.raises(errors.RpcError, match=r"task\.submit"):
        client.train(1)
    assert client.submit("train", 1).result(30) == 1


def test_a_batch_uses_results_of_its_own_items(client: shared_tensor.Client) -> None:
    with client.batch() as batch:
        three = batch.call("add", 1, 2)
        eight = batch.call("add", three, b=5)
        failed = batch.call("fail", "x")
    assert (three.result(), eight.result()) == (3, 8)
    with pytest.raises(errors.FunctionFailed):
        failed.result()
    assert batch.receipt is not None and batch.receipt.tries == 1


def test_an_object_stays_in_its_process_and_is_used_by_handle(client: shared_tensor.Client) -> None:

    model = client.create(7)
    assert model.type == "functions.Model"
    assert client.use(model, numpy.arange(3.0)).tolist() == [0, 7, 14]
    assert client.three.apply(numpy.ones(2)).tolist() == [3, 3]
    several = client.create_all([2, 3])
    assert several["count"] == 2 and client.use(several["made"][1], numpy.arange(2.0)).tolist() == [0, 3]
    wrong = client.batch()
    with pytest.raises(errors.InvalidParams):
        client.use(numpy.arange(3.0), model)
    assert len(wrong) == 0


def test_threads_share_a_client(client: shared_tensor.Client) -> None:
    results: list[float] = []
    threads = [threading.Thread(target=lambda n=n: results.append(client.add(n, n))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [2 * n for n in range(16)]


def test_an_argument_may_change_while_it_is_sent(client: shared_tensor.Client) -> None:
    """At any moment where Python has no GIL."""
    shared = {str(n): [n, {"n": n}] for n in range(50)}
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            for n in range(50):
                shared.pop(str(n))
                shared[str(n)] = [n, {"n": n}]

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(200):
            sent = client.echo(shared)
            assert len(sent) >= 49
            assert all(value == [int(key), {"n": int(key)}] for key, value in sent.items())
    finally:
        over.set()
        changing.join()


def test_a_client_is_not_pickled(client: shared_tensor.Client) -> None:
    with pytest.raises(TypeError, match="make a new one"):
        pickle.dumps(client)


def test_a_server_that_dies_in_a_call_is_one_clear_error(start_provider: Any) -> None:
    process = start_provider("functions:provider")
    client = shared_tensor.Client(process.url)
    with pytest.raises(errors.TransportFailure) as raised:
        client.end_process()
    assert raised.value.may_have_run
    with pytest.raises(errors.TransportFailure):
        client.options(timeout=20).add(1)


def test_a_provider_ends_cleanly_on_sigterm(start_provider: Any) -> None:
    process = start_provider("functions:provider")
    client = shared_tensor.Client(process.url)
    client.steps(0)
    results: list[int] = []
    slow = threading.Thread(target=lambda: results.append(client.steps(5)))
    slow.start()
    while client.has_ended(0):  # until the new call has begun
        assert slow.is_alive()
    assert process.stop() == 0
    slow.join()
    assert results == [10], "a call in flight gets its answer"


def test_the_package_imports_no_framework() -> None:
    code = (
        "import sys, shared_tensor; "
        "print([name for name in ('numpy', 'torch', 'jax', 'asyncio', 'tqdm') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_provider_serves_in_its_own_process_and_stops() -> None:
    provider = shared_tensor.SharedTensorProvider(execution_mode="server")

    @provider.share()
    def twice(x: int) -> int:
        return 2 * x

    url = provider.start(0)
    with shared_tensor.Client(url) as client:
        assert client.twice(21) == 42 == twice(21)
        assert provider.stop()
        with pytest.raises(errors.RpcError):
            client.options(timeout=1).twice(1)


def test_one_module_is_the_server_and_the_client(provider: Any) -> None:
    stub = shared_tensor.SharedTensorProvider(url=provider.url)

    @stub.share()
    def add(a: float, b: float = 1.0) -> float:
        raise AssertionError("the body runs in the server only")

    @stub.share()
    def area(box: functions.Box, mode: functions.Mode = functions.Mode.FAST) -> dict[str, Any]:
        raise AssertionError("the body runs in the server only")

    @stub.share(name="echo")
    def same(value: functions.Box) -> functions.Box:
        raise AssertionError("the body runs in the server only")

    assert add(2) == 3 and add(b=2, a=3) == 5
    assert area(functions.Box(2, 3))["area"] == 6 and same(functions.Box(2, 3)) == functions.Box(2, 3)
    with pytest.raises(TypeError):
        add()


def test_a_program_may_end_while_it_serves() -> None:
    code = """
from shared_tensor import Client, SharedTensorProvider
provider = SharedTensorProvider(execution_mode="server")
@provider.share()
def add(a: int, b: int) -> int:
    return a + b
client = Client(provider.start(0))
print([client.add(n, 1) for n in range(3)])
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2, 3]\n", "")


def test_stubs_are_of_the_kind_of_their_function(provider: Any) -> None:
    stub = shared_tensor.SharedTensorProvider(url=provider.url)

    @stub.share()
    def count(up_to: int) -> Iterator[int]:
        yield -1

    @stub.share()
    def total(numbers: Iterator[float]) -> float:
        return -1

    @stub.share()
    def doubled(arrays: Iterator[numpy.ndarray]) -> Iterator[numpy.ndarray]:
        yield -1

    @stub.share()
    async def nap(seconds: float) -> str:
        return "the body runs in the server only"

    @stub.share()
    async def ticks(up_to: int) -> AsyncIterator[int]:
        yield -1

    assert list(count(3)) == [0, 1, 2]
    assert next(count(1 << 40)) == 0, "a stream that is read in part"
    assert total(float(n) for n in range(1000)) == 499500
    assert [int(array[0]) for array in doubled(numpy.full(1, n) for n in range(500))] == list(range(0, 1000, 2))
    with pytest.raises(ZeroDivisionError):
        total(1 / n for n in (1, 0))

    async def later() -> None:
        assert await nap(0.01) == "slept"
        assert [tick async for tick in ticks(3)] == [0, 1, 2]

    asyncio.run(later())
    stub.close()
    asyncio.run(later())  # with new connections


def test_ctrl_c_ends_a_call_and_the_function_learns_it(provider: Any, client: shared_tensor.Client) -> None:
    code = (
        "import signal, sys, shared_tensor; client = shared_tensor.Client(sys.argv[1], timeout=None); "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background job may ignore it
        "print(client.add(1), flush=True); client.steps(60)"
    )
    command = [sys.executable, "-c", code, provider.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "2.0\n"
        time.sleep(0.5)  # the process waits for the answer of steps()
        process.send_signal(signal.SIGINT)
        _, errors_text = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors_text
    assert client.has_ended(10)


def test_a_forked_child_makes_connections_of_its_own(provider: Any) -> None:
    code = (
        "import os, sys, shared_tensor; client = shared_tensor.Client(sys.argv[1]); assert client.add(1) == 2\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if client.add(2) == 3 else 1)\n"
        "assert client.add(3) == 4; sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", code, provider.url], check=True, timeout=60)
