"""Three nodes of a Ray cluster, of which one is killed while calls and publications run."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import pytest
from conftest import HERE
from ray_nodes import RayNodes, why_not

pytest.importorskip("ray")


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_node_is_killed_while_calls_and_publications_run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = pathlib.Path(folder) / "ledger"
        nodes = RayNodes(3, pathlib.Path(folder))
        try:
            address = f"{nodes.address(0)}:6379"
            program = nodes.popen(
                0,
                *(sys.executable, "-B", str(HERE / "ray_nodes_program.py"), address, str(ledger)),
                stdout=subprocess.PIPE,
            )
            assert program.stdout is not None
            for line in program.stdout:
                print(line, end="")
                if line.startswith("kill the node"):
                    nodes.kill(int(line.split()[-1]))
            assert program.wait(timeout=60) == 0
        finally:
            nodes.remove()
