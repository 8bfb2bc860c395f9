"""Files that the package safetensors writes are put and got by the command line, and the other way round."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy
import pytest

import shared_tensor

safetensors = pytest.importorskip("safetensors")
files = pytest.importorskip("safetensors.numpy")

KINDS = ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8"]
SETS: dict[str, dict[str, Any]] = {
    "kinds": {f"of.{kind}": numpy.arange(6).astype(kind).reshape(2, 3) for kind in KINDS}
    | {
        "scalar": numpy.array(7, "f4"),
        "empty": numpy.zeros((0, 4), "f8"),
        'a name/with "odd" letters ä': numpy.ones(3, "u1"),
    },
    "many": {f"layer.{number}": numpy.full(25, number, "f4") for number in range(5000)},
    "none": {},
}
METADATA = {"format": "np", "note": 'ä "b"'}


def run(*words: object) -> None:
    program = pathlib.Path(sys.executable).parent / "shared-tensor"
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SETS)
def test_a_file_comes_back_as_it_was(client: shared_tensor.Client, tmp_path: pathlib.Path, name: str) -> None:
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    files.save_file(SETS[name], theirs, metadata=METADATA)
    run("put", theirs, "--name", f"file.{name}", "--url", client.url)
    run("get", f"file.{name}", "--output", ours, "--url", client.url)
    back = files.load_file(ours)
    assert back.keys() == SETS[name].keys()
    for key, tensor in SETS[name].items():
        assert back[key].dtype == tensor.dtype and numpy.array_equal(back[key], tensor), key
    with safetensors.safe_open(ours, "np") as file:
        assert file.metadata() == METADATA
