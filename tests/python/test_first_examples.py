"""The examples, and the snippets of docs/migrating.md, run as a user runs them: a server and a client process."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples/python"


def needs(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed in this environment")


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


def run_client(folder: pathlib.Path, *command: str, url: str) -> list[str]:
    """Returns the lines that the client printed."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "SHARED_TENSOR_URL": url}
    done = subprocess.run(
        [sys.executable, "-B", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_example(start_provider: Callable[..., Any], target: str, *arguments: str) -> list[str]:
    server = start_provider(target)
    file = target.partition(":")[0] + ".py"
    return run_client(EXAMPLES, file, *arguments or [port_of(server.url)], url=server.url)


def test_simple_functions(start_provider: Callable[..., Any]) -> None:
    assert run_example(start_provider, "simple_functions:provider") == [
        "10 + 20 = 30",
        "statistics: {'mean': 2.3, 'range': [1, 4]}",
        "in another process: True",
        "10 + 20 = 30",
        "statistics: {'mean': 2.3, 'range': [1, 4]}",
        "add_numbers: The sum of two numbers.",
        "process_id: ",
        "statistics: Mean, smallest and largest of a list of numbers.",
    ]


def test_create_tensor(start_provider: Callable[..., Any]) -> None:
    needs("torch")
    lines = run_example(start_provider, "create_tensor:provider")
    assert lines == ["shape: (3, 4) sum: 0.0", "all 5: True", "sum: 12.0"]


def test_model_sharing(start_provider: Callable[..., Any]) -> None:
    needs("torch")
    assert run_example(start_provider, "model_sharing:provider") == [
        "handle of a model_sharing.SimpleNet",
        "shape: (4, 10)",
        "as the same model here: True",
        "the same model: True",
        "another model: True",
    ]


def test_distributed_inference(start_provider: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    needs("torch")
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    monkeypatch.delenv("RANK", raising=False)
    servers = start_provider("distributed_inference:provider", ready=("url.0", "url.1"))
    ports = [port_of(url) for url in servers.url.split()]
    assert run_client(EXAMPLES, "distributed_inference.py", *ports, url="") == [
        "ranks: [0, 1]",
        "shape: (10, 4) as on one device: True",
    ]


def test_async_vs_sync(start_provider: Callable[..., Any]) -> None:
    server = start_provider("async_vs_sync:async_provider")
    lines = run_client(EXAMPLES, "async_vs_sync.py", port_of(server.url), "3", url=server.url)
    assert lines[0].startswith("sync: [200, 400, 600] in ")
    assert lines[1] in ("status: pending", "status: running")
    assert lines[2].startswith("async: [200, 400, 600] in ")
    assert lines[3:] == ["at the same time: True", "async: 42"]


def test_remote_execution(start_provider: Callable[..., Any]) -> None:
    needs("torch")
    lines = run_example(start_provider, "remote_execution:provider")
    assert lines[:2] == ["all 5: True", "all 6: True"] and lines[3:] == ["all 10: True"]
    assert lines[2].endswith("'shape': [100, 100], 'trace': 400.0}")


def test_each_example_is_run() -> None:
    here = pathlib.Path(__file__)
    source = here.read_text() + (here.parent / "test_examples.py").read_text()
    assert [file.stem for file in EXAMPLES.glob("*.py") if file.stem not in source] == []


# ---- docs/migrating.md


class Snippet(NamedTuple):
    line: int
    file: str
    needs: str
    code: str

    def expected(self) -> list[str]:
        """What the calls of print() say in their comments."""
        return re.findall(r"^print\(.*\)  +# (.*)$", self.code, re.MULTILINE)


BLOCK = r"^<!-- {} (\w+\.py)(?:, needs (\w+))? -->\n```python\n(.*?)^```"
PAGE = (REPOSITORY / "docs/migrating.md").read_text()


def blocks(kind: str) -> list[Snippet]:
    found = re.finditer(BLOCK.format(kind), PAGE, re.MULTILINE | re.DOTALL)
    return [Snippet(PAGE.count("\n", 0, block.start()) + 3, *block.groups("")) for block in found]


def test_each_python_block_of_the_page_is_run() -> None:
    assert PAGE.count("```python\n") == len(blocks("file")) + len(blocks("client of"))


@pytest.mark.parametrize("snippet", blocks("client of"), ids=lambda snippet: f"line {snippet.line}")
def test_snippets_print_what_they_say(
    snippet: Snippet, start_provider: Callable[..., Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if snippet.needs:
        needs(snippet.needs)
    (server_code,) = [block.code for block in blocks("file") if block.file == snippet.file]
    (tmp_path / snippet.file).write_text(server_code)
    monkeypatch.chdir(tmp_path)
    server = start_provider(snippet.file.removesuffix(".py") + ":provider")
    code = snippet.code.replace("server_port=2537", f"server_port={port_of(server.url)}")
    printed = run_client(tmp_path, "-c", code, url=server.url)
    assert printed == snippet.expected() and printed != []
