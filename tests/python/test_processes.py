"""Providers whose functions run in worker processes."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import HERE, Process

from shared_tensor import Client
from shared_tensor.errors import WorkerDied


def started(folder: pathlib.Path) -> Process:
    """A program that calls provider.serve(processes=2)."""
    ready = folder / "url"
    command = [sys.executable, str(HERE / "processes_app.py"), "2", str(ready)]
    return Process(command, lambda: ready.read_text() if ready.exists() else "")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = started(tmp_path_factory.mktemp("processes"))
    yield process
    assert process.stop() == 0


@pytest.fixture
def calls(program: Process) -> Iterator[Client]:
    with Client(program.url) as client:
        yield client


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def restarts(calls: Client) -> int:
    """How many processes have ended, of which the server knows."""
    return sum(one["restarts"] for one in calls.info()["worker_processes"])


def die(calls: Client, how: str) -> str:
    """Lets the process of a call die, and waits until the next one is ready. Returns the error of the call."""
    before = restarts(calls)
    with pytest.raises(WorkerDied) as raised:
        calls.call("die", how)
    assert eventually(lambda: restarts(calls) > before)
    assert eventually(lambda: all(one["ready"] for one in calls.info()["worker_processes"]))
    return str(raised.value)


def test_calls_run_in_each_process_and_none_in_the_server(program: Process, calls: Client) -> None:
    pids = {calls.call("pid") for _ in range(8)}
    assert len(pids) == 2
    assert program.process.pid not in pids


def test_functions_that_hold_the_gil_run_in_different_processes(calls: Client) -> None:
    tasks = [calls.submit("count", 3.0) for _ in range(2)]
    assert eventually(lambda: all(task.status().state == "running" for task in tasks))
    assert calls.call("server.info")["version"]
    pids = {task.result() for task in tasks}
    assert len(pids) == 2


@pytest.mark.parametrize("how, reason", [("exit", "exit status 7"), ("SIGSEGV", "SIGSEGV"), ("SIGKILL", "SIGKILL")])
def test_a_process_that_dies_costs_its_own_call_one_error(calls: Client, how: str, reason: str) -> None:
    task = calls.submit("count", 2.0)
    assert eventually(lambda: task.status().state == "running")
    error = die(calls, how)
    assert task.result() > 0
    if reason not in error:  # a busy server learns too late how the process ended: it waits 2 s for that
        error = die(calls, how)
    assert reason in error
    assert eventually(lambda: len({calls.call("pid") for _ in range(4)}) == 2)


def test_large_tensors_are_handed_over_without_a_copy(calls: Client) -> None:
    x = calls.options(framework="numpy").empty((4096, 4096), "float32")
    x[:] = 1.0
    calling = calls.options(receipt=True)
    for _ in range(2):
        made = calling.call("scale", x, 3.0)
        assert made[0, 0] == 3.0 and made[-1, -1] == 3.0
        receipt = calling.last_receipt
        assert receipt is not None
        assert receipt.transports == [("shm", 2, 0)]
        assert receipt.bytes_copied == 0


def test_an_object_stays_in_its_process_and_is_lost_with_it(calls: Client) -> None:
    tally = calls.call("tally")
    assert tally.type == "__main__.Tally"
    (first, home), (second, same) = calls.call("add", tally, 2), calls.call("add", tally, 3)
    assert (first, second, same) == (2, 5, home)
    before = restarts(calls)
    os.kill(home, signal.SIGKILL)
    assert eventually(lambda: restarts(calls) > before)
    assert not is_running(home)
    with pytest.raises(WorkerDied, match="the object that it had is lost"):
        calls.call("add", tally, 1)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_processes_end_with_the_server(tmp_path: pathlib.Path, end: signal.Signals) -> None:
    process = started(tmp_path)
    with Client(process.url) as client:
        pids = {client.call("pid") for _ in range(8)}
    process.process.send_signal(end)
    process.process.wait(timeout=30)
    assert eventually(lambda: not any(map(is_running, pids)))


def test_a_provider_tells_its_processes() -> None:
    import processes_app

    provider = processes_app.provider
    try:
        url = provider.start(0, processes=1)
        [one] = provider.processes
        assert one.ready and one.restarts == 0
        with Client(url) as client:
            assert client.call("pid") == one.pid
            with pytest.raises(WorkerDied):
                client.call("die", "exit")
            assert eventually(lambda: provider.processes[0].restarts == 1)
            assert client.call("pid") != one.pid
        [one] = provider.processes
        assert "exit status 7" in one.last_end
    finally:
        provider.stop()
    assert provider.processes == []


def test_a_provider_that_processes_cannot_find_is_an_error() -> None:
    import processes_app

    with pytest.raises(ValueError, match="global variable of a module"):
        processes_app.hidden[0].start(0, processes=1)


def test_a_module_that_serves_when_it_is_imported_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "unguarded.py").write_text(
        "from shared_tensor import SharedTensorProvider\n"
        "provider = SharedTensorProvider()\n"
        "@provider.share()\n"
        "def one() -> int:\n    return 1\n"
        "provider.serve(0, processes=1)\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "unguarded.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert '`if __name__ == "__main__":`' in done.stderr
    assert "exit status 1 before it was ready" in done.stderr


def test_a_server_that_is_told_to_end_while_its_processes_start_ends_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "slow_start.py").write_text(
        "import os, time\n"
        "from shared_tensor import SharedTensorProvider\n"
        "provider = SharedTensorProvider()\n"
        "if __name__ == '__mp_main__':\n"
        "    open(f'{__file__}.{os.getpid()}', 'w').close()\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    provider.serve(0, processes=1)\n"
    )
    process = subprocess.Popen([sys.executable, tmp_path / "slow_start.py"])
    assert eventually(lambda: any(tmp_path.glob("slow_start.py.*")))
    [worker] = [int(path.suffix[1:]) for path in tmp_path.glob("slow_start.py.*")]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert eventually(lambda: not is_running(worker))


def test_a_program_that_only_imports_the_provider_may_serve_it(tmp_path: pathlib.Path) -> None:
    """As a notebook does: its main module is no file."""
    program = (
        "from processes_app import provider\n"
        "from shared_tensor import Client\n"
        "url = provider.start(0, processes=1)\n"
        "print(Client(url).call('pid') == provider.processes[0].pid)\n"
        "provider.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_a_provider_that_was_told_to_end_serves_again(tmp_path: pathlib.Path) -> None:
    ready = tmp_path / "url"
    program = (
        "from processes_app import provider\n"
        "from shared_tensor import Client\n"
        f"provider.serve(0, processes=1, ready_file={str(ready)!r})\n"
        "url = provider.start(0, processes=1)\n"
        "assert Client(url).call('pid') == provider.processes[0].pid\n"
        "provider.stop()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(HERE)})
    assert eventually(ready.exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
