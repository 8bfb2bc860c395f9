"""Calls of Python functions in another process: values, errors, options, tasks, streams, batches."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import dataclasses
import itertools
import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, Protocol

import functions
import numpy
import pytest
from conftest import until

import shared_tensor
from shared_tensor import errors
from shared_tensor._function import EventLoop
from shared_tensor.async_client import AsyncClient


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


@dataclasses.dataclass
class Sample:
    data: Any
    raw: shared_tensor.Tensor


def test_tensors_inside_tuples_and_dataclasses_have_the_framework() -> None:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")

    @provider.share(framework="numpy")
    def kinds(pair: tuple, sample: Sample) -> tuple:  # type: ignore[type-arg]
        return type(pair[0]).__name__, type(sample.data).__name__, type(sample.raw).__name__, pair[0]

    array = numpy.ones(1)
    with shared_tensor.Client(provider.start(0), framework="numpy") as client:
        answer = client.function(kinds)((array,), Sample(array, array))  # type: ignore[arg-type]
        assert answer[:3] == ("ndarray", "ndarray", "Tensor") and isinstance(answer[3], numpy.ndarray)
    provider.stop()


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


def test_hints_of_less_common_types() -> None:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")

    @provider.share()
    def depth(tree: Tree) -> int:
        return 1 + max((depth(child) for child in tree.children), default=0)

    @provider.share()
    def others(mode: Literal[functions.Mode.FAST], x: numpy.float32, n: numpy.int8, ids: frozenset[int]) -> list[str]:
        return [repr(mode), type(x).__name__, type(n).__name__, type(ids).__name__]

    with shared_tensor.Client(provider.start(0)) as client:
        assert client.depth(Tree(1, [Tree(2), Tree(3, [Tree(4)])])) == 3
        with pytest.raises(errors.InvalidParams, match=r"tree\.children\[0\]\.value: expected integer"):
            client.depth({"value": 1, "children": [{"value": "a"}]})
        answer = client.others(functions.Mode.FAST, numpy.float32(1.5), 3, {1, 2})
        assert answer == [repr(functions.Mode.FAST), "float32", "int8", "frozenset"]
        with pytest.raises(errors.InvalidParams, match="expected one of 'fast'"):
            client.others("exact", 1.5, 3, [])
        with pytest.raises(errors.InvalidParams, match="n: expected int8, got 300"):
            client.others("fast", 1.5, 300, [])
    provider.stop()


def served(port: int, function: Callable[..., Any]) -> shared_tensor.SharedTensorProvider:
    provider = shared_tensor.SharedTensorProvider(0, execution_mode="server")
    provider.register("scale", function)
    provider.start(port)
    return provider


def test_the_parameters_of_a_function_are_asked_for_again_when_it_has_others() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def call_from_asyncio() -> Any:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(errors.MethodNotFound):
                await client.call("nothing", 2, factor=3)
            return await client.call("scale", 2, factor=3)

    first = shared_tensor.SharedTensorProvider(0, execution_mode="server")
    first.register("other", len)
    first.start(port)
    with shared_tensor.Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(errors.MethodNotFound):
            client.call("scale", 2, factor=3)
        first.stop()
        second = served(port, lambda x, factor: x * factor)
        assert client.call("scale", 2, factor=3) == 6
        assert asyncio.run(call_from_asyncio()) == 6
        second.stop()
        third = served(port, lambda first, second, factor: (first + second) * factor)
        assert client.call("scale", 2, 3, factor=4) == 20
        third.stop()
        fourth = served(port, lambda x, y, factor: (x + y) * factor)
        with pytest.raises(errors.InvalidParams):
            client.call("scale", 2, 3, factor=4)
        assert client.call("scale", 2, 3, factor=4) == 20
        fourth.stop()


def test_a_client_that_asks_for_parameters_does_not_delay_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with shared_tensor.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=60) as client:
            first = threading.Thread(target=pytest.raises, args=(errors.RpcError, client.add, 1), kwargs={"b": 2})
            first.start()
            time.sleep(0.2)
            begin = time.monotonic()
            with pytest.raises(errors.RpcError):
                client.options(timeout=0.5).call("add", 1, b=2)
            assert time.monotonic() - begin < 20
        first.join()


@pytest.mark.parametrize(
    ("call", "parameter", "expected"),
    [
        (lambda c: c.add("x"), "a", "number"),
        (lambda c: c.add(True), "a", "number"),
        (lambda c: c.add(), "a", "a value"),
        (lambda c: c.area({"width": 1}), "box.height", "a value"),
        (lambda c: c.area({"width": 1, "height": 2, "depth": 3}), "box.depth", "no such member"),
        (lambda c: c.area({"width": 1, "height": 2}, mode="slow"), "mode", "one of 'fast', 'exact'"),
        (lambda c: c.typed(1.5, "", "", [1, "a"]), "whole", "integer"),
        (lambda c: c.typed(1, "", "?", [1, "a"]), "raw", "base64 text"),
        (lambda c: c.typed(1, "", "", [1]), "pair", "array of 2"),
        (lambda c: c.typed(1, "", "", [1, 2]), r"pair\[1\]", "string"),
        (lambda c: c.typed(1, "", "", [1, "a"], "x"), "maybe", "integer or null"),
        (lambda c: c.typed(1, "", "", [1, "a"], None, {"kind": "c"}), "options.kind", "one of 'a', 'b'"),
        (lambda c: c.scale(1.0), "x", "tensor"),
        (lambda c: c.use(1, [1.0]), "model", "a handle of a Model"),
    ],
)
def test_arguments_are_checked_before_the_call(
    client: shared_tensor.Client, call: Callable[[shared_tensor.Client], Any], parameter: str, expected: str
) -> None:
    with pytest.raises(errors.InvalidParams, match=f"parameter {parameter}: expected {expected}") as raised:
        call(client)
    assert raised.value.code == -32602


def test_arguments_become_what_the_type_hints_say(client: shared_tensor.Client) -> None:
    assert client.area({"width": 2, "height": 3}, mode="exact") == {
        "area": 6.0,
        "mode": "exact",
        "box": {"width": 2.0, "height": 3.0, "label": ""},
    }
    assert client.typed(2.0, "t", b"abc", (1, "a"), options={"rounds": 3}) == [
        "2",
        "'t'",
        "b'abc'",
        "(1, 'a')",
        "None",
        "{'rounds': 3}",
    ]


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


def test_streams_in_out_and_both(client: shared_tensor.Client) -> None:
    assert list(client.stream("count", 5)) == [0, 1, 2, 3, 4]
    assert list(client.stream("ticks", 3)) == [0, 1, 2]
    sum_of = client.stream("total")
    with sum_of.writer() as numbers:
        assert all(numbers.write(number) for number in range(10))
    assert sum_of.result() == 45


ASYNC_PROVIDER = """
import asyncio, os, time
from collections.abc import AsyncIterator
from shared_tensor import Client, SharedTensorProvider

def serve():
    provider = SharedTensorProvider(0, execution_mode="server")

    @provider.share()
    async def doubled(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number

    return provider, Client(provider.start(0, workers=64), timeout=20)
"""
IDLE_STREAMS = """
provider, client = serve()
idle = [client.options(timeout=60).stream("doubled") for _ in range((os.cpu_count() or 1) + 8)]
writers = [stream.writer() for stream in idle]
time.sleep(0.5)
print(list(client.stream("doubled", iter([1, 2]))))
for stream in idle:
    stream.cancel()
"""
AFTER_FORK = """
provider, client = serve()
assert list(client.stream("doubled", iter([1]))) == [2]
if child := os.fork():
    os.waitpid(child, 0)
else:
    other, client = serve()
    print(list(client.stream("doubled", iter([1, 2]))), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("program", [IDLE_STREAMS, AFTER_FORK], ids=["beside_idle_streams", "after_fork"])
def test_async_streams_run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", ASYNC_PROVIDER + program], capture_output=True, text=True)
    assert done.stdout == "[2, 4]\n", done.stderr


def test_a_result_that_comes_as_the_wait_ends_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()

    def result(timeout: float | None = None) -> int:
        if timeout is not None:
            future.set_result(1)
            raise concurrent.futures.TimeoutError
        return 1

    monkeypatch.setattr(future, "result", result)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda work, loop: future)
    assert EventLoop(asyncio.new_event_loop()).run(None, None) == 1  # type: ignore[arg-type]


def test_an_iterator_as_an_argument_is_a_stream(client: shared_tensor.Client) -> None:
    assert client.stream("total", numbers=iter([1, 2, 3])).result() == 6
    assert list(client.stream("running_sum", (n for n in range(1, 2000)))) == list(itertools.accumulate(range(1, 2000)))
    endless = client.stream("running_sum", numbers=itertools.count())
    assert next(iter(endless)) == 0
    with pytest.raises(TypeError, match="names of the parameters"):
        client.stream("running_sum", iter([1]), iter([2]))
    with pytest.raises(errors.InvalidParams):
        client.stream("total", [1, 2]).result()  # a list is a value, and the function has no such parameter


def test_an_iterator_of_a_wrong_name_ends_the_other_iterators(client: shared_tensor.Client) -> None:
    def streams() -> int:
        return sum(thread.name == "shared_tensor stream" for thread in threading.enumerate())

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            time.sleep(0.01)
            yield number

    before = streams()
    with pytest.raises(ValueError, match="the function reads numbers"):
        client.stream("total", numbers=numbers(), nmbers=iter([1]))
    until(lambda: streams() <= before)


def test_an_iterator_that_raises_ends_the_call_with_its_exception(client: shared_tensor.Client) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        client.stream("total", numbers()).result()
    with pytest.raises(KeyError, match="no more"):
        list(client.stream("running_sum", numbers()))
    with pytest.raises(TypeError, match="cannot be an argument"):
        client.stream("total", iter([object()])).result()


def test_an_iterator_that_blocks_does_not_hold_up_the_calls_end(client: shared_tensor.Client) -> None:
    def numbers() -> Iterator[Any]:
        yield "no number"
        threading.Event().wait()

    with pytest.raises(errors.InvalidParams):
        client.stream("total", numbers()).result()


def test_an_exception_in_the_writers_block_cancels_the_call(client: shared_tensor.Client) -> None:
    call = client.stream("total")
    with pytest.raises(KeyError), call.writer() as numbers:
        numbers.write(1)
        raise KeyError
    with pytest.raises(errors.Cancelled):  # not the sum of a part
        call.result()


def test_a_bad_item_of_a_stream_is_the_callers_mistake(client: shared_tensor.Client) -> None:
    call = client.stream("total")
    with call.writer() as numbers:
        numbers.write("x")
    with pytest.raises(errors.InvalidParams, match="number"):
        call.result()


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
        client.options(timeout=2).add(1)


def test_a_provider_ends_cleanly_on_sigterm(start_provider: Any) -> None:
    process = start_provider("functions:provider")
    client = shared_tensor.Client(process.url)
    client.steps(0)
    results: list[int] = []
    slow = threading.Thread(target=lambda: results.append(client.steps(0.5)))
    slow.start()
    while client.has_ended(0):
        pass
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
