"""Ray clusters of several nodes: one node is killed while calls and publications run; two nodes use TLS."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from conftest import HERE
from ray_nodes import RayNodes, why_not

pytest.importorskip("ray")

pytestmark = pytest.mark.heavy


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


TLS_PROGRAM = """
import sys, numpy, ray
sys.path.insert(0, sys.argv[2])
import ray_functions
import shared_tensor.ray as fleet
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR",
         runtime_env={"env_vars": {"PYTHONPATH": sys.argv[2]}})
elsewhere = {"num_cpus": 0.1, "resources": {"not_head": 1}}
handle = ray_functions.provider.deploy(**elsewhere).options(receipt=True)
assert handle.double(numpy.ones(100_000)).sum() == 200_000
assert handle.last_receipt.transports[0][0] == "body", handle.last_receipt
assert [replica.near for replica in handle.replicas()] == [False]
fleet.publish("weights", {"a": numpy.arange(1_000_000), "b": numpy.ones(7)})

@ray.remote(**elsewhere)
def read() -> list[int]:
    weights = fleet.names(framework="numpy").get("weights")
    return [int(weights["a"][-1]), len(weights["b"])]

assert ray.get(read.remote()) == [999_999, 7]
print(handle.replicas()[0].url)
"""


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not installed")
def test_nodes_use_the_certificates_of_ray() -> None:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/node.pem", f"{folder}/node.key"
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=nodes"
        hosts = ",".join(f"IP:{address}" for address in ("127.0.0.1", RayNodes.address(0), RayNodes.address(1)))
        files = ["-addext", f"subjectAltName={hosts}", "-keyout", key, "-out", certificate]
        subprocess.run([*make.split(), *files], check=True, capture_output=True)
        tls = {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": certificate,
            "RAY_TLS_SERVER_KEY": key,
            "RAY_TLS_CA_CERT": certificate,
        }
        nodes = RayNodes(2, pathlib.Path(folder), environment=tls)
        try:
            words = [sys.executable, "-B", "-c", TLS_PROGRAM, f"{nodes.address(0)}:6379", str(HERE)]
            program = nodes.popen(0, *words, stdout=subprocess.PIPE)
            url, _ = program.communicate(timeout=120)
            assert program.returncode == 0
            assert url.startswith("https://")
        finally:
            nodes.remove()
