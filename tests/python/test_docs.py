"""The examples of README.md and docs/start/python.md, and those of docs/python.md in their order, against a server with
their functions."""

from __future__ import annotations

import asyncio
import inspect
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import shared_tensor

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_each_example_runs(provider: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    assert len(EXAMPLES) >= 5
    monkeypatch.setenv("SHARED_TENSOR_URL", provider.url)
    monkeypatch.chdir(tmp_path)

    def serve(self: shared_tensor.SharedTensorProvider) -> None:
        with shared_tensor.Client(self.start(0)) as client:
            assert {"project"} <= {method["name"] for method in client.discover()["methods"]}
        assert self.stop()

    monkeypatch.setattr(shared_tensor.SharedTensorProvider, "serve", serve)
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        if re.search(r"\btorch\b|\bmodel\b", example):
            reason = "the examples before this one ran; this one needs torch 2.1"
            torch = pytest.importorskip("torch", minversion="2.1", reason=reason)
            names["model"] = torch.nn.Sequential(torch.nn.Linear(2, 2))
            save_base(provider.url, tmp_path)
        exec(compile(example.replace("http://127.0.0.1:2537", provider.url), str(PAGE), "exec"), names)
        if inspect.iscoroutinefunction(names.get("main")):
            asyncio.run(names.pop("main")())


def test_the_examples_of_weights_run(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", minversion="2.3")
    monkeypatch.setenv("SHARED_TENSOR_URL", provider.url)
    page = REPOSITORY / "docs/weights.md"
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(example, str(page), "exec"), names)
    for name in ("policy", "checkpoint"):
        names["names"].remove(name)


def test_the_readmes_functions_serve_the_readmes_client(start_provider: Any) -> None:
    page = (REPOSITORY / "README.md").read_text()
    files = re.findall(r"<!-- file: (\S+\.py) -->\n```python\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["examples/readme/functions.py", "examples/readme/client.py"]
    for name, text in files:
        assert text == (REPOSITORY / name).read_text()
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    server = start_provider("functions:provider", inside=REPOSITORY / "examples/readme")
    client = [sys.executable, REPOSITORY / "examples/readme/client.py"]
    shown = subprocess.run(client, env={**os.environ, "SHARED_TENSOR_URL": server.url}, capture_output=True, text=True)
    assert shown.stdout == "tensor([[1., 1., 1.],\n        [1., 1., 1.]])\n", shown.stderr


def test_the_first_steps_print_what_their_page_says(start_provider: Any) -> None:
    page = (REPOSITORY / "docs/start/python.md").read_text()
    shown = re.search(r"<!-- output: examples/start/client.py -->\n```\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    folder = REPOSITORY / "examples/start"
    server = start_provider("functions:provider", inside=folder)

    def output_of(*words: str) -> str:
        command = [sys.executable, folder / words[0], *words[1:]]
        environment = {**os.environ, "SHARED_TENSOR_URL": server.url}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert output_of("client.py") == shown[1]
    assert output_of("weights.py", "publish") == ""
    assert f"# prints: {output_of('weights.py', 'read')}" in page


def save_base(url: str, folder: pathlib.Path) -> None:
    """Makes the file that an example publishes, and lets the newer version come for which an example waits."""
    import numpy

    with shared_tensor.Client(url) as client:
        names = shared_tensor.NamedTensors(client)
        names.publish("file", {"layer.0.weight": numpy.ones((2, 2), numpy.float32)})
        names.get("file").save(folder / "model.safetensors")
        names.remove("file")
