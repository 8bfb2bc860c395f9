"""Providers and servers as users of shared-tensor 0.1 know them: asynchronous calls, singletons, SharedTensorServer,
`python -m shared_tensor.server`."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import until

import shared_tensor
from shared_tensor import errors
from shared_tensor.async_provider import AsyncSharedTensorProvider
from shared_tensor.async_task import TaskInfo
from shared_tensor.client import SharedTensorClient
from shared_tensor.provider import SharedTensorProvider
from shared_tensor.server import SharedTensorServer

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
    enabled = SharedTensorProvider(1, default_enabled=False, timeout=20)
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


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


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
    with SharedTensorServer(port=0, provider=provider, enable_cache=False) as server:
        client = SharedTensorClient(url=server.url)
        assert [client.call_function("counted") for _ in range(2)] == [2, 3]
    with SharedTensorServer(port=0, provider=provider, timeout=0.2) as server:
        client = SharedTensorClient(url=server.url, timeout=None)
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


def test_if_the_process_that_started_the_servers_is_killed_they_end(ranks: Any) -> None:
    clients = [SharedTensorClient(url=url, timeout=5) for url in ranks.url.split()]
    assert all(client.ping() for client in clients)
    ranks.kill()
    until(lambda: not any(client.ping() for client in clients))


def test_if_one_server_dies_all_end(ranks: Any) -> None:
    children = pathlib.Path(f"/proc/{ranks.process.pid}/task/{ranks.process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[0]), signal.SIGKILL)
    assert ranks.process.wait(timeout=30) == signal.SIGKILL
    assert not any(SharedTensorClient(url=url, timeout=5).ping() for url in ranks.url.split())
