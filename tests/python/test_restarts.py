"""Providers and nodes under the keeper that the package carries: what outlives their processes."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy
import pytest
from conftest import HERE, until
from ports import free_port

import shared_tensor
from shared_tensor import NamedTensors, errors

PROVIDER = """
import os, time
from shared_tensor import SharedTensorProvider

provider = SharedTensorProvider()

@provider.share()
def enter(name: str, seconds: float = 0) -> int:
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(name + "\\n")
    time.sleep(seconds)
    return os.getpid()
"""


class Kept:
    """A provider under a keeper, at the same address in each of its lives."""

    def __init__(self, folder: pathlib.Path, *options: str) -> None:
        port = free_port()
        (folder / "kept_functions.py").write_text(PROVIDER)
        self.ledger = folder / "ledger"
        keeper = pathlib.Path(sys.executable).with_name("shared-tensor-keeper")
        server = [sys.executable, "-m", "shared_tensor.server", "kept_functions:provider", *options]
        self.process = subprocess.Popen(
            [keeper, "--listen", f"127.0.0.1:{port}", "--", *server],
            cwd=folder,
            env={**os.environ, "LEDGER": str(self.ledger), "PYTHONPATH": str(HERE)},
        )
        self.client = shared_tensor.Client(f"http://127.0.0.1:{port}", wait_for_server=30)

    def kill(self) -> None:
        before = self.client.enter("before")
        os.kill(before, signal.SIGKILL)
        until(lambda: self.client.options(idempotent=True).enter("after") != before)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Iterator[Kept]:
    started = Kept(tmp_path)
    try:
        yield started
    finally:
        started.stop()


def test_names_and_keys_outlive_a_provider(kept: Kept) -> None:
    names = NamedTensors(kept.client.options(framework="numpy"))
    large = numpy.arange(100_000.0)
    version = names.publish("weights", {"a": large, "b": large + 1}).version
    keyed = kept.client.options(idempotency_key="k")
    first = keyed.enter("once")
    kept.kill()
    read = names.get("weights")
    assert read.version == version and (read["b"] == large + 1).all()
    assert keyed.enter("once") == first
    assert kept.ledger.read_text().split().count("once") == 1


def test_a_call_that_had_begun_is_an_error_of_its_own(kept: Kept) -> None:
    keyed = kept.client.options(idempotency_key="k", timeout=60)
    pid = kept.client.enter("first")
    task = keyed.submit("enter", "begun", 60.0)
    until(lambda: "begun" in kept.ledger.read_text())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(errors.OutcomeUnknown):
        keyed.submit("enter", "begun", 60.0)
    del task
    assert kept.ledger.read_text().split().count("begun") == 1


def test_the_keeper_ends_with_its_provider(tmp_path: pathlib.Path) -> None:
    kept = Kept(tmp_path)
    assert kept.client.enter("x") > 0
    assert kept.stop() == 0
