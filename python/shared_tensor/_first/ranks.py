"""One server for each GPU: GPUS_PER_NODE=4 python -m shared_tensor.server package.module:provider"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from .._signals import told_to_end, wait_until
from ..provider import default_port

_PARENT = "__SHARED_TENSOR_PARENT__"
"""The variable of a rank that names the reading end of a pipe; the writing end closes when the first process ends."""


def end_with_parent() -> None:
    """In a rank: from now on SIGTERM comes when the process that started it has ended, however that ended."""
    pipe = os.environ.pop(_PARENT, "")
    if pipe:
        threading.Thread(target=_wait_for_parent, args=(int(pipe),), daemon=True).start()


def _wait_for_parent(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


class Ranks:
    """Processes with RANK and LOCAL_RANK from 0 on. Each runs the same command. Their ports follow each other, and the
    name of each ready file ends with the rank. If one process ends, or this one, all do."""

    def __init__(self, count: int, arguments: Sequence[str], port: int | None, ready_file: str) -> None:
        self._arguments = list(arguments)
        self._port = default_port() if port is None else port
        self._ready_file = ready_file
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []
        self._one_ended = threading.Event()
        self._pipe, self._own_end = os.pipe()

    def run(self) -> int:
        """Returns when all have ended: 0 if SIGTERM or SIGINT came and all ended well."""
        with told_to_end() as told:
            try:
                for rank in range(self._count):
                    self._start(rank)
                wait_until(lambda: told() or self._one_ended.is_set())
            finally:
                for process in self._processes:
                    process.terminate()
                codes = [process.wait() for process in self._processes]
        return max(map(abs, codes))

    def _start(self, rank: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "shared_tensor.server", *self._arguments, *self._own_options(rank)],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), _PARENT: str(self._pipe)},
            pass_fds=[self._pipe],
        )
        self._processes.append(process)
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def _own_options(self, rank: int) -> list[str]:
        port = ["--port", str(self._port + rank if self._port else 0)]
        return [*port, "--ready-file", f"{self._ready_file}.{rank}"] if self._ready_file else port

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._one_ended.set()
