"""Ends: of a program whose threads still call or serve, of a wait that Ctrl-C interrupts, of a server whose function
does not return."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import shared_tensor
from shared_tensor import errors

# The interpreter has ended when __del__ runs: other threads get the GIL no more.
SLOW_END = """
import asyncio, builtins, sys, threading, time, numpy
from shared_tensor import Client, SharedTensorProvider
from shared_tensor.async_client import AsyncClient

class SlowEnd:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

builtins.slow_end = SlowEnd()
"""
CALLING_THREADS = """
client, array = Client(sys.argv[1]), numpy.ones(1000)

def call():
    while True:
        client.echo({"a": [1, array]})
        for item in client.stream("count", 20):
            pass

for _ in range(4):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.3)
"""
OPEN_ASYNC_CLIENT = """
async def call():
    global client
    client = AsyncClient(sys.argv[1])
    try:
        await asyncio.wait_for(client.nap(0.4), 0.2)
    except asyncio.TimeoutError:
        pass

asyncio.run(call())
"""
RUNNING_FUNCTION = """
provider, runs = SharedTensorProvider(execution_mode="server"), threading.Event()

@provider.share()
def spin() -> int:
    runs.set()
    while True:
        pass

def call():
    try:
        client.spin()
    except Exception:
        pass

client = Client(provider.start(0))
threading.Thread(target=call, daemon=True).start()
runs.wait()
"""


@pytest.mark.parametrize(
    "program", [CALLING_THREADS, OPEN_ASYNC_CLIENT, RUNNING_FUNCTION], ids=["calls", "async", "serves"]
)
def test_a_program_may_end_while_its_threads_are_busy(provider: Any, program: str) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", SLOW_END + program + "print('ends')", provider.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


WAITS = {
    "task": "client.submit('steps', 60).result()",
    "batch": "batch = client.batch(); batch.call('steps', 60); batch.send()",
    "result": "client.stream('total', numbers=forever()).result()",
    "items": "list(client.stream('doubled', arrays=forever()))",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_each_kind_of_wait(provider: Any, wait: str) -> None:
    code = (
        "import signal, sys, time, shared_tensor; client = shared_tensor.Client(sys.argv[1], timeout=None)\n"
        "def forever():\n    time.sleep(60)\n    yield 1\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"try:\n    print(client.add(1), flush=True)\n    {WAITS[wait]}\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    import os; os._exit(0)\n"
    )
    command = [sys.executable, "-c", code, provider.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "2.0\n"
        time.sleep(0.5)  # the process waits
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert output == "interrupted\n"


def test_a_function_that_does_not_return_does_not_hold_up_the_servers_end() -> None:
    provider, begun, may_end = (
        shared_tensor.SharedTensorProvider(execution_mode="server"),
        threading.Event(),
        threading.Event(),
    )

    @provider.share()
    def hold() -> int:
        begun.set()
        may_end.wait(60)
        return 1

    raised: list[BaseException] = []

    def call(client: shared_tensor.Client) -> None:
        try:
            client.hold()
        except errors.ShuttingDown as error:
            raised.append(error)

    with shared_tensor.Client(provider.start(0)) as client:
        caller = threading.Thread(target=call, args=(client,))
        caller.start()
        assert begun.wait(30)
        assert not provider.stop(0.1)
        caller.join(30)
        may_end.set()
    assert [error.may_have_run for error in raised] == [True]  # type: ignore[attr-defined]


SERVES_FOREVER = """
import time
from shared_tensor import SharedTensorProvider
provider = SharedTensorProvider()

@provider.share()
def hold() -> int:
    time.sleep(600)
    return 1
"""


def test_a_served_module_ends_in_its_drain_time(tmp_path: pathlib.Path) -> None:
    (tmp_path / "holds.py").write_text(SERVES_FOREVER)
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "shared_tensor.server", "holds:provider", "--port", "0"]
    command += ["--drain-time", "200ms", "--ready-file", str(ready)]
    with subprocess.Popen(command, cwd=tmp_path) as server:
        while not ready.exists():
            assert server.poll() is None
            time.sleep(0.01)
        client = shared_tensor.Client(ready.read_text(), timeout=60)
        task = client.submit("hold")
        while task.status().state != "running":
            time.sleep(0.01)
        server.terminate()
        assert server.wait(timeout=30) == 1
