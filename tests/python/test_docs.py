"""The examples of docs/python.md, run in their order against a server with the functions that they call."""

from __future__ import annotations

import asyncio
import pathlib
import re
from typing import Any

import pytest

import shared_tensor

PAGE = pathlib.Path(__file__).parents[2] / "docs/python.md"
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
            torch = pytest.importorskip("torch", reason="the examples before this one ran; this one needs torch")
            names["model"] = torch.nn.Sequential(torch.nn.Linear(2, 2))
            save_base(provider.url, tmp_path)
        exec(compile(example.replace("http://127.0.0.1:2537", provider.url), str(PAGE), "exec"), names)
        if asyncio.iscoroutinefunction(names.get("main")):
            asyncio.run(names.pop("main")())


def save_base(url: str, folder: pathlib.Path) -> None:
    """Makes the file that an example publishes, and lets the newer version come for which an example waits."""
    import numpy

    with shared_tensor.Client(url) as client:
        names = shared_tensor.NamedTensors(client)
        names.publish("file", {"layer.0.weight": numpy.ones((2, 2), numpy.float32)})
        names.get("file").save(folder / "model.safetensors")
        names.remove("file")
