"""Servers for the tests: the daemon that the package carries, and providers in processes of their own."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from ports import free_port

import shared_tensor
from shared_tensor.async_client import AsyncSharedTensorClient
from shared_tensor.client import SharedTensorClient

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples/python"
PATIENCE = 120  # seconds: a process that imports torch or ray takes its time on a busy machine


class Process:
    """A server in a process of its own, which has told its URL."""

    def __init__(self, command: list[str], ready: Callable[[], str], folder: pathlib.Path | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{HERE}:{EXAMPLES}"}
        self.process = subprocess.Popen(command, env=environment, cwd=folder)
        deadline = time.monotonic() + PATIENCE
        while not (url := ready()):
            assert self.process.poll() is None, f"{command} ended with {self.process.returncode}"
            assert time.monotonic() < deadline, f"{command} is not ready after {PATIENCE} s"
            time.sleep(0.01)
        self.url = url

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def until(found: Callable[[], Any]) -> Any:
    """Asks until there is an answer, for PATIENCE at most."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert time.monotonic() < deadline, f"nothing was found in {PATIENCE} s"
        time.sleep(0.01)
    return answer


def run_ranks(program: str, url: str, count: int, *words: str) -> None:
    """Runs `program URL PORT RANK COUNT WORDS` for each rank, whose group meets at PORT. Each must succeed."""
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / program), url, port, str(rank), str(count), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        for rank in ranks:
            said = rank.communicate(timeout=120)[0]
            assert rank.returncode == 0, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def urls_in(files: list[pathlib.Path]) -> str:
    """The URLs in these files, with blanks between; an empty text while a file is missing."""
    return " ".join(file.read_text() for file in files) if all(file.exists() for file in files) else ""


@pytest.fixture(scope="session")
def start_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Process]]:
    """Starts `python -m shared_tensor.server` with a module of this folder, of the examples, or of `inside`."""
    started = []

    def start(
        target: str, *options: str, ready: tuple[str, ...] = ("url",), inside: pathlib.Path | None = None
    ) -> Process:
        folder = tmp_path_factory.mktemp("provider")
        command = [
            sys.executable,
            "-m",
            "shared_tensor.server",
            target,
            "--port",
            "0",
            "--ready-file",
            str(folder / "url"),
            *options,
        ]
        started.append(Process(command, lambda: urls_in([folder / name for name in ready]), inside))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()


@pytest.fixture(scope="session")
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Process]]:
    """Starts a role of services.py."""
    started = []

    def start(role: str) -> Process:
        ready = tmp_path_factory.mktemp(role) / "url"
        command = [sys.executable, str(HERE / "services.py"), role, str(ready)]
        started.append(Process(command, lambda: ready.read_text() if ready.exists() else ""))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()


@pytest.fixture(scope="session", params=["threads", "processes"])
def provider(start_provider: Callable[..., Process], request: pytest.FixtureRequest) -> Process:
    """Its functions run on threads of the server, or in worker processes: callers see no difference."""
    return start_provider("functions:provider", *(["--processes", "1"] if request.param == "processes" else []))


@pytest.fixture(scope="session")
def provider_of_tensors(start_provider: Callable[..., Process]) -> Process:
    """In place of `provider`, for tests that call no function: how functions run makes no difference to them."""
    return start_provider("functions:provider")


@pytest.fixture
def client(provider: Process) -> Iterator[shared_tensor.Client]:
    with shared_tensor.Client(provider.url) as client:
        yield client


# ---- the classes of shared-tensor 0.1


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
