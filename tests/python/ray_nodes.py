"""A Ray cluster of several nodes on one machine: each in a network namespace of its own, on one bridge, with temporary
files of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from bridge import Bridge, ip

NAME = f"sr{os.getpid()}"


def why_not() -> str:
    if os.geteuid() != 0:
        return "it needs root, for network namespaces"
    if shutil.which("ip") is None:
        return "it needs iproute2"
    try:
        ip("netns", "add", NAME)
        ip("netns", "del", NAME)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    return ""


class RayNodes:
    """Node 0 is the head."""

    def __init__(
        self,
        count: int,
        folder: pathlib.Path,
        store_bytes: int = 200 << 20,
        cpus: int = 4,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.bridge = Bridge(NAME, count, "10.213.11")
        self.spaces = self.bridge.spaces
        self._options = ["--num-cpus", str(cpus), "--object-store-memory", str(store_bytes), "--disable-usage-stats"]
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._environment = {**os.environ, **token, **(environment or {})}
        self._processes: list[subprocess.Popen[bytes]] = []
        for i in range(count):
            self._start(i)

    @staticmethod
    def address(i: int) -> str:
        return f"10.213.11.{i + 1}"

    def _start(self, i: int) -> None:
        head = ["--head", "--port", "6379", "--include-dashboard", "false"]
        role = head if i == 0 else ["--address", f"{self.address(0)}:6379", "--resources", '{"not_head": 10}']
        ray = [str(pathlib.Path(sys.executable).with_name("ray"))]
        if not pathlib.Path(ray[0]).exists():  # of the environment below this one
            ray = [sys.executable, "-m", "ray.scripts.scripts"]
        command = [*ray, "start", "--block", "--node-ip-address", self.address(i), *role, *self._options]
        own = [pathlib.Path("/tmp/ray"), pathlib.Path(f"/tmp/shared_tensor-{os.getuid()}")]
        for place in own:
            place.mkdir(mode=0o700, exist_ok=True)
        mounts = " && ".join(f"mount -t tmpfs -o mode=0700 tmpfs {place}" for place in own)
        with open(self.folder / f"node{i}.log", "w") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        "ip",
                        "netns",
                        "exec",
                        self.spaces[i],
                        "unshare",
                        "-m",
                        "sh",
                        "-c",
                        f'{mounts} && exec "$@"',
                        "sh",
                        *command,
                    ],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=self._environment,
                    cwd="/",
                )
            )
        if i == 0:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        deadline = time.monotonic() + 60
        while "Ray runtime started" not in (self.folder / "node0.log").read_text():
            assert time.monotonic() < deadline and self._processes[0].poll() is None, (
                self.folder / "node0.log"
            ).read_text()
            time.sleep(0.2)

    def popen(self, i: int, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a program on a node."""
        inside = ["nsenter", "-t", str(self._processes[i].pid), "-n", "-m", *words]
        environment = self._environment
        return subprocess.Popen(inside, text=True, start_new_session=True, env=environment, cwd="/", **options)

    def kill(self, i: int) -> None:
        """Ends all processes of a node at once."""
        done = subprocess.run(["ip", "netns", "pids", self.spaces[i]], capture_output=True, text=True)
        for pid in done.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._processes[i].wait()

    def remove(self) -> None:
        for i in range(len(self._processes)):
            self.kill(i)
        self.bridge.remove()
