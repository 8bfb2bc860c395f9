"""Runs the programs of docs/other_projects.md, each in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import pathlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from ports import free_port

PAGE = pathlib.Path(__file__).parents[2] / "docs/other_projects.md"
PACKAGES = {"splitlearn-comm": "splitlearn_comm", "KPU": "kpu.torch", "tensor_iroh": "tensor_iroh"}


@dataclasses.dataclass
class Programs:
    """One column of a project's table."""

    servers: list[str] = dataclasses.field(default_factory=list)
    clients: list[str] = dataclasses.field(default_factory=list)

    def needs(self, module: str) -> bool:
        return any(f"import {module}" in text for text in self.servers + self.clients)


def programs_of(section: str) -> tuple[Programs, Programs]:
    """The left and the right column of a section's table."""
    left, right = Programs(), Programs()
    for cells in re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", section, re.DOTALL):
        for cell, column in zip(cells, (left, right), strict=True):
            [(info, text)] = re.findall(r"^```python( server)?\n(.*?)^```$", cell, re.DOTALL | re.MULTILINE)
            (column.servers if info else column.clients).append(text)
    return left, right


SECTIONS = {text.partition("\n")[0]: text for text in PAGE.read_text().split("\n## ")[1:]}


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(program: str, port: int) -> Iterator[None]:
    server = subprocess.Popen([sys.executable, "-c", program])
    try:
        deadline = time.monotonic() + 120
        while not accepts(port):
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not listen after 120 s"
            time.sleep(0.05)
        yield
        assert server.poll() is None, "the server has ended"
    finally:
        server.kill()
        server.wait()


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_column(column: Programs) -> str:
    """Runs the server, and each client beside it, on other ports than the page has. Returns what the clients print."""
    port, other = free_port(), free_port()

    def moved(text: str) -> str:
        text = text.replace("TensorClient()", f"TensorClient(port={port})")
        return text.replace("50051", str(port)).replace("50052", str(other))

    with contextlib.ExitStack() as servers:
        for server in column.servers:
            servers.enter_context(running(moved(server), port))
        return "".join(run(moved(client)) for client in column.clients)


EXPECTED = {
    "splitlearn-comm": ["Output shape: torch.Size([1, 10, 768])", "Total requests: 1", "Device: cpu"],
    "KPU": ["Server received: Received 1 tensor(s)", "Received 2 tensors", "Received 1 processed tensors"],
    "tensor_iroh": ["Connection pool size: 1", "my_tensor [2, 3] True"],
}


@pytest.mark.parametrize("project", PACKAGES)
def test_our_programs_run(project: str) -> None:
    ours = programs_of(SECTIONS[project])[1]
    if ours.needs("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("the programs need torch, which is not installed in this environment")
    printed = run_column(ours)
    for line in EXPECTED[project]:
        assert line in printed


@pytest.mark.parametrize("project", PACKAGES)
def test_their_programs_run(project: str) -> None:
    package = PACKAGES[project]
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(package) is not None:
            printed = run_column(programs_of(SECTIONS[project])[0])
            for line in EXPECTED[project]:
                assert line in printed
            return
    pytest.skip(f"{package} is not installed in this environment")


def test_each_program_has_one_beside_it() -> None:
    for project in PACKAGES:
        left, right = programs_of(SECTIONS[project])
        assert len(left.servers) == len(right.servers) and len(left.clients) == len(right.clients) >= 1
        assert not any("shared_tensor" in text for text in left.clients + left.servers)


def snippet(mark: str) -> str:
    [text] = re.findall(rf"<!-- {mark} -->\n```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(text)


def test_the_program_with_node_runs() -> None:
    assert run(snippet("python")) == "batch (2, 3) 1\n"


def test_an_open_host_is_rejected() -> None:
    done = subprocess.run([sys.executable, "-c", snippet("rejected")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "ValueError: host='0.0.0.0' without a token" in done.stderr and "token_file='...'" in done.stderr
