"""The classes that users of shared-tensor 0.1 know: same import paths, names, parameters and defaults."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import shared_tensor
from shared_tensor import errors, jsonrpc, utils
from shared_tensor.async_client import AsyncSharedTensorClient, execute_remote_function_async
from shared_tensor.async_provider import AsyncSharedTensorProvider
from shared_tensor.async_task import TaskInfo, TaskStatus
from shared_tensor.client import SharedTensorClient, execute_remote_function
from shared_tensor.provider import SharedTensorProvider
from shared_tensor.server import SharedTensorServer

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def port(start_provider: Any) -> int:
    return int(start_provider("first_functions:provider").url.rpartition(":")[2])


@pytest.fixture
def first(port: int) -> Iterator[SharedTensorClient]:
    with SharedTensorClient(server_port=port) as client:
        yield client


@pytest.fixture
def tasks(port: int) -> Iterator[AsyncSharedTensorClient]:
    with AsyncSharedTensorClient(server_port=port, poll_interval=0.02) as client:
        yield client


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def until(found: Callable[[], Any]) -> Any:
    """Asks until there is an answer, at most 30 s."""
    deadline = time.monotonic() + 30
    while not (answer := found()):
        assert time.monotonic() < deadline, "nothing was found in 30 s"
        time.sleep(0.01)
    return answer


# ---- names


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("client", "SharedTensorClient execute_remote_function"),
        ("async_client", "AsyncSharedTensorClient execute_remote_function_async"),
        ("provider", "SharedTensorProvider"),
        ("async_provider", "AsyncSharedTensorProvider"),
        ("server", "SharedTensorServer main"),
        ("errors", "SharedTensorError SharedTensorServerError SharedTensorClientError SharedTensorProviderError"),
        ("async_task", "TaskInfo TaskStatus"),
        ("jsonrpc", "JsonRpcRequest JsonRpcResponse JsonRpcError JsonRpcErrorCodes"),
        ("jsonrpc", "create_success_response create_error_response parse_request parse_response"),
        ("utils", "import_function_from_path format_cache_key serialize_result deserialize_args"),
        ("", "SharedTensorClient SharedTensorProvider SharedTensorServer AsyncSharedTensorClient"),
        ("", "AsyncSharedTensorProvider TaskInfo"),
    ],
)
def test_each_name_is_imported_from_the_path_that_it_had(module: str, names: str) -> None:
    found = importlib.import_module(f"shared_tensor.{module}".rstrip("."))
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_a_name_that_the_package_never_had_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'SharedTensorServers'"):
        shared_tensor.SharedTensorServers


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (SharedTensorClient, {"server_port": 2537, "timeout": 30, "retry_count": 3, "verbose_debug": False}),
        (AsyncSharedTensorClient, {"server_port": 2537, "verbose_debug": False, "poll_interval": 1.0}),
        (
            SharedTensorServer,
            {
                "host": "127.0.0.1",
                "port": 2537,
                "timeout": 30,
                "max_workers": 4,
                "enable_cache": True,
                "debug": False,
            },
        ),
        (AsyncSharedTensorClient.wait_for_task, {"timeout": None, "callback": None}),
        (AsyncSharedTensorClient.submit_task, {"args": (), "kwargs": None}),
        (AsyncSharedTensorClient.list_tasks, {"status": None}),
        (SharedTensorClient.call_function, {"args": (), "kwargs": None}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_parameters_and_defaults_are_those_of_the_first(function: Any, parameters: dict[str, Any]) -> None:
    of_function = inspect.signature(function).parameters
    assert {name: of_function[name].default for name in parameters} == parameters
    order = [name for name in of_function if name in parameters]
    assert order == list(parameters), "they can be given by position"


def test_a_provider_takes_the_port_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert SharedTensorProvider().server_port == AsyncSharedTensorProvider().server_port == 2540
    assert SharedTensorProvider(server_port=9000).server_port == 9000


def test_registered_functions_can_be_looked_at() -> None:
    provider = SharedTensorProvider()

    @provider.share(name="twice")
    def double(x: int, factor: int = 2) -> int:
        return x * factor

    assert list(provider._registered_functions) == ["twice"]
    registered = provider._registered_functions["twice"]
    assert repr(registered).startswith(f"<twice(x: 'int', factor: 'int' = 2) -> 'int' at {__file__}:")
    assert registered["name"] == "twice" and registered["function_path"].startswith(f"{__name__}:")


# ---- SharedTensorClient


def test_functions_are_called_with_a_list_and_a_dict(first: SharedTensorClient) -> None:
    assert first.call_function("add_numbers", [10, 20]) == 30
    assert first.call_function("add_numbers", (10,)) == 11
    assert first.call_function("add_numbers", [10], {"b": 5}) == 15
    assert first.call_function("add_numbers", kwargs={"a": 1, "b": 2}) == 3


def test_of_a_path_the_name_counts(first: SharedTensorClient, port: int) -> None:
    assert first.execute_function("no.such.module:add_numbers", (1,), {"b": 2}, {"singleton": False}) == 3
    assert execute_remote_function("first_functions:add_numbers", (1, 2), server_port=port) == 3


def test_a_client_tells_about_its_server(first: SharedTensorClient) -> None:
    assert first.ping()
    assert first.get_server_info()["protocol"]
    functions = first.list_functions()
    assert functions["add_numbers"] == "The sum." and "task.submit" not in functions


def test_the_old_exceptions_catch_what_they_caught(first: SharedTensorClient) -> None:
    for name, arguments in [("no_such_function", []), ("fail", ["x"]), ("add_numbers", [])]:
        with pytest.raises(errors.SharedTensorServerError):
            first.call_function(name, arguments)
    with pytest.raises(errors.SharedTensorProviderError, match="x"):
        first.call_function("fail", ["x"])


def test_without_a_server_there_is_a_client_error() -> None:
    nobody = SharedTensorClient(server_port=1, timeout=5, retry_count=0)
    with pytest.raises(errors.SharedTensorClientError) as raised:
        nobody.call_function("add_numbers", [1, 2])
    assert not isinstance(raised.value, errors.SharedTensorServerError)
    assert not nobody.ping()


def test_a_deadline_is_an_error_of_both_sides(port: int) -> None:
    client = SharedTensorClient(port, 0.2)
    with pytest.raises(TimeoutError) as raised:
        client.call_function("pass_gate", ["never"])
    assert isinstance(raised.value, errors.SharedTensorServerError)
    assert isinstance(raised.value, errors.SharedTensorClientError)


class Busy(BaseHTTPRequestHandler):
    """Rejects each request as a server does that has too much work."""

    protocol_version = "HTTP/1.1"
    requests: list[str]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = jsonrpc.parse_request(text)
        self.requests.append(request.method)
        rejection = jsonrpc.create_error_response(request.id, -32001, "Server busy", {"retry_after_ms": 1})
        body = rejection.to_json().encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("retry_count", [0, 2])
def test_a_rejected_call_is_repeated_as_often_as_retry_count_says(retry_count: int) -> None:
    handler = type("Handler", (Busy,), {"requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            SharedTensorClient(server.server_port, retry_count=retry_count) as client,
            pytest.raises(errors.ServerBusy),
        ):
            client.call_function("work")
        server.shutdown()
    assert handler.requests.count("work") == 1 + retry_count  # type: ignore[attr-defined]


def test_verbose_debug_logs_each_call(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shared_tensor"):
        SharedTensorClient(port).call_function("add_numbers", [1, 2])
        assert caplog.messages == []
        SharedTensorClient(port, verbose_debug=True).call_function("add_numbers", [1, 2])
        (line,) = caplog.messages
    assert "add_numbers" in line and "(1, 2)" in line


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        (True, "bool"),
        (1, "int"),
        (1.0, "float"),
        ("a", "str"),
        (b"ab", "str"),
        ((1, 2), "list"),
        ({1}, "list"),
        ({"a": 1}, "dict"),
    ],
    ids=repr,
)
def test_what_a_function_without_type_hints_gets(first: SharedTensorClient, value: Any, kind: str) -> None:
    assert first.call_function("kind", [value]) == kind


def test_with_type_hints_bytes_tuples_and_sets_are_what_they_were(first: SharedTensorClient) -> None:
    assert first.call_function("kinds_with_hints", [b"ab", (1, 2), {1}]) == ["bytes", "tuple", "set"]
    assert first.call_function("results") == ["YWI=", [1, 2]]


@pytest.mark.parametrize("value", [len, int, object(), threading.Lock(), {1: 2}], ids=lambda v: type(v).__name__)
def test_what_only_pickle_could_send_is_a_type_error(first: SharedTensorClient, value: Any) -> None:
    with pytest.raises(TypeError):
        first.call_function("kind", [value])


# ---- AsyncSharedTensorClient


def test_a_task_is_submitted_watched_and_its_result_fetched(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("pass_gate", ["watched"])
    assert tasks.get_task_status(task).status in (TaskStatus.PENDING, TaskStatus.RUNNING), "submit does not wait"
    with pytest.raises(errors.SharedTensorServerError, match=r"has not ended within 0\.1 s"):
        tasks.wait_for_task(task, timeout=0.1)
    running = until(lambda: tasks.list_tasks("running").get(task))
    assert (running.function_path, running.completed_at) == ("pass_gate", None)
    assert until(lambda: tasks.get_task_status(task).progress) == {"fraction": 0.5, "message": "waits"}

    tasks.client.open_gate("watched")
    assert tasks.get_task_result(task) == "passed watched"
    ended = tasks.get_task_status(task)
    assert ended.status.value == "completed"
    assert ended.completed_at is not None and ended.completed_at >= ended.created_at
    assert task in tasks.list_tasks(TaskStatus.COMPLETED) and task not in tasks.list_tasks("running")
    assert task in tasks.list_tasks()
    with pytest.raises(ValueError):
        tasks.list_tasks("asleep")


def test_a_list_of_tasks_that_needs_several_requests_is_complete(
    tasks: AsyncSharedTensorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = [tasks.submit_task("add_numbers", [n]) for n in range(5)]
    assert [tasks.get_task_result(task) for task in submitted] == [1, 2, 3, 4, 5]
    monkeypatch.setattr("shared_tensor._first.tasks.PAGE", 2)
    assert list(tasks.list_tasks("completed"))[:5] == submitted[::-1], "the newest first"


def test_a_callback_gets_each_report_until_the_end(tasks: AsyncSharedTensorClient) -> None:
    seen: list[TaskInfo] = []

    def report(info: TaskInfo) -> None:
        seen.append(info)
        if len(seen) == 2:
            tasks.client.open_gate("reported")
        raise RuntimeError("the wait goes on all the same")

    task = tasks.submit_task("pass_gate", kwargs={"name": "reported"})
    assert tasks.wait_for_task(task, 30, report) == "passed reported"
    assert len(seen) >= 3 and seen[-1].status is TaskStatus.COMPLETED
    assert all(info.task_id == task and not info.status.ended for info in seen[:2])


def test_a_task_is_cancelled_once(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("pass_gate", ["cancelled"])
    assert tasks.cancel_task(task)
    assert tasks.get_task_status(task).status is TaskStatus.CANCELLED
    assert not tasks.cancel_task(task), "it has ended"
    assert not tasks.cancel_task("t-00000000000000000000000000000000"), "there is none"
    with pytest.raises(errors.SharedTensorServerError):
        tasks.wait_for_task(task)


def test_the_error_of_a_failed_task_is_raised_and_told(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("first_functions:fail", ["no luck"])
    with pytest.raises(errors.SharedTensorServerError, match="no luck"):
        tasks.wait_for_task(task)
    info = tasks.get_task_status(task)
    assert (info.status, info.error_message) == (TaskStatus.FAILED, "ValueError: no luck")
    assert TaskInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info


def test_a_function_is_executed_as_a_task_with_or_without_waiting(tasks: AsyncSharedTensorClient, port: int) -> None:
    assert tasks.execute_function_async("add_numbers", (1,), {"b": 2}) == 3
    task = tasks.execute_function_async("add_numbers", (1, 2), wait=False)
    assert tasks.get_task_result(task) == 3
    assert execute_remote_function_async("first_functions:add_numbers", (1, 2), server_port=port) == 3


# ---- AsyncSharedTensorProvider


def test_a_shared_function_of_an_async_provider_is_a_task(port: int) -> None:
    provider = AsyncSharedTensorProvider(port, poll_interval=0.02)

    @provider.share(name="add_numbers")
    def add(a: float, b: float = 1) -> float:
        raise AssertionError("the body runs in the server only")

    @provider.share(wait=False)
    def pass_gate(name: str) -> str:
        raise AssertionError("the body runs in the server only")

    assert add(2) == 3 and add(2, b=5) == 7
    assert provider.get_task_result(add.submit_async(a=1)) == 2
    seen: list[TaskInfo] = []
    assert add.execute_async(1, timeout=30, callback=seen.append) == 2 and seen[-1].function_path == "add_numbers"

    task = pass_gate("asynchronous")
    assert not provider.get_task_status(task).status.ended, "wait=False returns the id at once"
    with pytest.raises(errors.SharedTensorProviderError):
        pass_gate.execute_async("asynchronous", wait=True, timeout=0.05)
    provider.client.open_gate("asynchronous")
    assert provider.wait_for_task(task, 30) == "passed asynchronous"
    with pytest.raises(TypeError):
        add()  # type: ignore[call-arg]
    provider.close()
    assert add(3) == 4, "a later call connects again"


def test_in_the_server_a_shared_function_is_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("__SHARED_TENSOR_SERVER_MODE__", "true")
    provider, asynchronous = SharedTensorProvider(1), AsyncSharedTensorProvider(1)
    assert provider.share()(len)("abc") == 3
    assert asynchronous.share(wait=False)(len)("abc") == 3


def test_a_provider_that_is_not_enabled_calls_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SharedTensorProvider(1, default_enabled=False).share()(len)("abc") == 3
    monkeypatch.setenv("__SHARED_TENSOR_ENABLED__", "true")
    enabled = SharedTensorProvider(1, default_enabled=False, timeout=1)
    with pytest.raises(errors.TransportFailure):
        enabled.share()(len)("abc")
    monkeypatch.setenv("__SHARED_TENSOR_ENABLED__", "false")
    assert SharedTensorProvider(1).share()(len)("abc") == 3


# ---- singleton


def test_a_singleton_is_made_once_for_each_set_of_arguments(first: SharedTensorClient) -> None:
    a = first.call_function("one_for_each_size", [10])
    b = first.call_function("one_for_each_size", [], {"size": 10, "label": "a"})
    c = first.call_function("one_for_each_size", [11])
    assert first.call_function("same", [a, b]) and not first.call_function("same", [a, c])
    assert first.call_function("times_made", [10]) == 1


def test_callers_at_the_same_time_get_one_singleton() -> None:
    provider = SharedTensorProvider(execution_mode="server")
    both_run = threading.Barrier(2)
    made: list[object] = []

    @provider.share(singleton=True)
    def make() -> object:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_run.wait(timeout=0.3)  # a second caller that also runs the function would come here
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(make), pool.submit(make)
    assert first.result() is second.result() and len(made) == 1


def test_a_formatter_says_which_calls_get_the_same_result(first: SharedTensorClient) -> None:
    assert first.call_function("one_by_formatter", [1, "first"]) == "first"
    assert first.call_function("one_by_formatter", [1, "second"]) == "first"
    assert first.call_function("one_by_formatter", [2, "second"]) == "second"


def test_a_singleton_without_a_key_is_rejected_with_the_cure(first: SharedTensorClient) -> None:
    model = first.call_function("one_for_each_size", [1])
    with pytest.raises(errors.FunctionFailed, match="give singleton_key_formatter"):
        first.call_function("one_for_each_size", [model])


def test_an_exception_is_no_singleton() -> None:
    provider = SharedTensorProvider(execution_mode="server")
    outcomes = iter([ValueError("no"), 1, 2])

    @provider.share(singleton=True)
    def work() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ValueError):
        work()
    assert [work(), work()] == [1, 1]
    with pytest.raises(TypeError, match="plain function"):

        @provider.share(singleton=True)
        async def later() -> None: ...


# ---- SharedTensorServer


def two_providers() -> tuple[SharedTensorProvider, SharedTensorProvider]:
    first, second = SharedTensorProvider(execution_mode="client"), SharedTensorProvider(execution_mode="client")
    first.share(name="one")(lambda: 1)
    second.share(name="two")(lambda: 2)
    return first, second


def test_a_server_serves_the_functions_of_one_provider() -> None:
    one, _ = two_providers()
    server = SharedTensorServer(port=0, provider=one, max_workers=2)
    with pytest.raises(RuntimeError, match="call start"):
        server.url
    with server, SharedTensorClient(url=server.url) as client:
        assert server.running and client.call_function("one") == 1
        assert list(client.list_functions()) == ["one"]
        with pytest.raises(RuntimeError, match="already"):
            server.start()
    assert not server.running


def test_a_server_without_a_provider_serves_all_of_its_process() -> None:
    code = (
        "from shared_tensor.client import SharedTensorClient\n"
        "from shared_tensor.provider import SharedTensorProvider\n"
        "from shared_tensor.server import SharedTensorServer\n"
        "try: SharedTensorServer(port=0).start()\n"
        "except ValueError as error: print(error)\n"
        "a, b, elsewhere = SharedTensorProvider(), SharedTensorProvider(), SharedTensorProvider(url='http://x')\n"
        "one = a.share(name='one')(lambda: 1)\n"
        "b.share(name='two')(lambda: 2)\n"
        "elsewhere.share(name='three')(lambda: 3)\n"
        "with SharedTensorServer(port=0) as server, SharedTensorClient(url=server.url) as client:\n"
        "    print(sorted(client.list_functions()), client.call_function('two'), one())\n"
        "b.share(name='one')(lambda: 2)\n"
        "try: SharedTensorServer(port=0).start()\n"
        "except ValueError as error: print(error)\n"
    )
    done = python(code)
    assert done.stdout.splitlines() == [
        "this process shares no function: import the module of the provider first, or say provider=",
        "['one', 'two'] 2 1",
        "two providers share a function one: give one another name, or say provider=",
    ], done.stderr


def test_a_server_that_blocks_ends_when_another_thread_stops_it() -> None:
    one, _ = two_providers()
    server = SharedTensorServer(port=0, provider=one)
    thread = threading.Thread(target=server.start)
    thread.start()
    until(lambda: server.running or not thread.is_alive())
    assert SharedTensorClient(url=server.url).call_function("one") == 1
    server.stop()
    thread.join(20)
    assert not thread.is_alive() and not server.running


def test_an_address_beyond_loopback_needs_a_token_and_the_error_says_how() -> None:
    one, _ = two_providers()
    with pytest.raises(ValueError, match=r"host='0\.0\.0\.0' without a token.*give token_file="):
        SharedTensorServer(host="0.0.0.0", port=0, provider=one).start()


def test_a_server_with_a_token_file_listens_beyond_loopback(tmp_path: pathlib.Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:0123456789abcdef0123456789abcdef\n")
    tokens.chmod(0o600)
    one, _ = two_providers()
    with SharedTensorServer("0.0.0.0", 0, provider=one, token_file=str(tokens)) as server:
        port = int(server.url.rpartition(":")[2])
        with SharedTensorClient(port, token="0123456789abcdef0123456789abcdef") as client:
            assert client.call_function("one") == 1
        with pytest.raises(errors.NotAuthorised):
            SharedTensorClient(port).call_function("one")


def test_the_options_of_a_server_count() -> None:
    provider = SharedTensorProvider(execution_mode="server")
    calls: list[int] = []

    @provider.share(cached=True)
    def counted() -> int:
        calls.append(1)
        return len(calls)

    @provider.share()
    def slow(context: shared_tensor.Context) -> bool:
        return context.sleep(30)

    with SharedTensorServer(port=0, provider=provider) as server:
        client = SharedTensorClient(url=server.url)
        assert [client.call_function("counted") for _ in range(2)] == [1, 1]
    with SharedTensorServer(port=0, provider=provider, enable_cache=False, timeout=0.2) as server:
        client = SharedTensorClient(url=server.url, timeout=None)
        assert [client.call_function("counted") for _ in range(2)] == [2, 3]
        with pytest.raises(errors.DeadlineExceeded):
            client.call_function("slow")


def test_a_server_with_debug_logs_its_start_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    one, _ = two_providers()
    with caplog.at_level(logging.DEBUG, "shared_tensor"):
        with SharedTensorServer(port=0, provider=one):
            pass
        assert caplog.messages == []
        with SharedTensorServer(port=0, provider=one, debug=True) as server:
            url = server.url
    assert caplog.messages[0] == f"1 functions at {url}" and len(caplog.messages) == 2


# ---- python -m shared_tensor.server


def test_the_command_asks_for_a_provider() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shared_tensor.server", "--host", "0.0.0.0", "--port", "9000"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "python -m shared_tensor.server package.module:provider" in done.stderr


@pytest.fixture
def ranks(start_provider: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One command that has started two servers."""
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    monkeypatch.delenv("RANK", raising=False)
    return start_provider("first_functions:provider", ready=("url.0", "url.1"))


def test_gpus_per_node_starts_a_server_for_each_and_ends_all(ranks: Any) -> None:
    clients = [SharedTensorClient(url=url, timeout=5) for url in ranks.url.split()]
    assert [client.call_function("environment", ["RANK"]) for client in clients] == ["0", "1"]
    assert [client.call_function("environment", ["LOCAL_RANK"]) for client in clients] == ["0", "1"]
    assert ranks.stop() == 0
    assert [client.ping() for client in clients] == [False, False]


def test_if_one_server_dies_all_end(ranks: Any) -> None:
    children = pathlib.Path(f"/proc/{ranks.process.pid}/task/{ranks.process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[0]), signal.SIGKILL)
    assert ranks.process.wait(timeout=30) == signal.SIGKILL
    assert not any(SharedTensorClient(url=url, timeout=5).ping() for url in ranks.url.split())


# ---- jsonrpc, utils


def test_a_request_made_by_hand_is_answered(port: int) -> None:
    request = jsonrpc.JsonRpcRequest("add_numbers", {"a": 1, "b": 2})
    assert jsonrpc.parse_request(request.to_json()) == request
    assert jsonrpc.parse_response(post(port, request)).result == 3
    unknown = jsonrpc.parse_response(post(port, jsonrpc.JsonRpcRequest("no_such_function", id=7)))
    assert unknown.id == 7 and unknown.error is not None
    assert unknown.error["code"] == jsonrpc.JsonRpcErrorCodes.METHOD_NOT_FOUND
    failed = jsonrpc.parse_response(post(port, jsonrpc.JsonRpcRequest("fail", ["x"])))
    assert failed.error is not None and failed.error["code"] == jsonrpc.JsonRpcErrorCodes.FUNCTION_EXECUTION_ERROR


def post(port: int, request: jsonrpc.JsonRpcRequest) -> str:
    http = urllib.request.Request(
        f"http://127.0.0.1:{port}/jsonrpc",
        data=request.to_json().encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(http, timeout=20) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_responses_are_written_and_read() -> None:
    good = jsonrpc.create_success_response(1, None)
    assert json.loads(good.to_json()) == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert jsonrpc.parse_response(good.to_json()) == good
    bad = jsonrpc.create_error_response("a", -32000, "Function failed", {"type": "KeyError"})
    assert jsonrpc.parse_response(bad.to_json()) == bad and "result" not in bad.to_dict()


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (jsonrpc.parse_request, "{"),
        (jsonrpc.parse_request, "[]"),
        (jsonrpc.parse_request, '{"method": "f"}'),
        (jsonrpc.parse_request, '{"jsonrpc": "2.0"}'),
        (jsonrpc.parse_request, '{"jsonrpc": "2.0", "method": 3}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "result": 1}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "id": 1}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}}'),
    ],
)
def test_text_that_is_no_message_is_a_value_error(parse: Any, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_a_function_is_imported_by_its_path() -> None:
    assert utils.import_function_from_path("os.path:join") is os.path.join
    assert utils.import_function_from_path("shared_tensor.async_task:TaskInfo.to_dict") is TaskInfo.to_dict
    for path, error in [("os.path", ValueError), ("os:sep", ValueError), ("os:nothing", ImportError)]:
        with pytest.raises(error):
            utils.import_function_from_path(path)


def test_a_cache_key_has_the_arguments_that_its_format_names() -> None:
    def load(size: int, kind: str = "small") -> None: ...

    assert utils.format_cache_key("load", load, (3,), {}, "{_name_}-{size}-{kind}") == "load-3-small"


def test_nothing_is_pickled() -> None:
    for function in (utils.serialize_result, utils.deserialize_args):
        with pytest.raises(TypeError, match="pickles nothing"):
            function(b"")
