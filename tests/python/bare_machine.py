"""Runs on a machine without a compiler and our dependencies (test_bare_machine.py makes one): installs the wheel into a
fresh environment, and uses it. Prints what it saw as JSON.

    python bare_machine.py WHEEL FOLDER
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

TOOLS = ["cc", "gcc", "c++", "g++", "clang", "ld", "make", "ninja", "cmake", "ccache"]

PROVIDER = """
from shared_tensor import SharedTensorProvider, Tensor

provider = SharedTensorProvider()

@provider.share()
def add(a: float, b: float) -> float:
    return a + b

@provider.share(framework="none")
def send_back(x: Tensor) -> Tensor:
    return x
"""
CLIENT = """
import sys
from shared_tensor import Client

with Client(sys.argv[1], framework="none") as client:
    x = client.empty([2, 3], "float32")
    print(client.add(1, 2), client.send_back(x).shape, client.transports()["shm"])
"""


def tools() -> list[str]:
    """Compilers and build tools that a program here could run."""
    return [tool for tool in TOOLS if shutil.which(tool)]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout.strip()


def call_a_provider(python: pathlib.Path, folder: pathlib.Path) -> str:
    (folder / "functions.py").write_text(PROVIDER)
    (folder / "client.py").write_text(CLIENT)
    ready = folder / "url"
    command = [python, "-m", "shared_tensor.server", "functions:provider", "--port", "0", "--ready-file", ready]
    server = subprocess.Popen([str(word) for word in command], cwd=folder)
    try:
        while not ready.exists():
            if server.poll() is not None:
                raise RuntimeError(f"the provider ended with {server.returncode}")
            time.sleep(0.01)
        return run(python, folder / "client.py", ready.read_text())
    finally:
        server.terminate()
        server.wait(30)


def main(wheel: str, place: str) -> None:
    folder = pathlib.Path(place)
    seen: dict[str, Any] = {"user": os.getuid(), "tools": tools()}
    run(sys.executable, "-m", "venv", folder / "environment")
    binaries = folder / "environment/bin"
    begin = time.monotonic()
    run(binaries / "python3", "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheel)
    seen["seconds"] = time.monotonic() - begin
    seen["server"] = run(binaries / "shared-tensor-server", "--version")
    seen["help"] = run(binaries / "shared-tensor", "--help")
    seen["called"] = call_a_provider(binaries / "python3", folder)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
