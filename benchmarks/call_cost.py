#!/usr/bin/env python3
"""What one small call costs a server: instructions of its own code (callgrind) and system calls (strace).

    benchmarks/call_cost.py build/release/benchmarks/shared_tensor_bench

Unlike times, these figures do not depend on what else the machine does. Each is the difference between a run with many
calls and one with few, so the start does not count. One client, one connection; client and server share one core.
Needs valgrind and strace. It takes about three minutes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

FEW, MANY = 2_000, 6_000
ROWS = [
    ("bare cpp-httplib echo", "httplib-echo", "echo"),
    ("cpp-httplib and nlohmann/json by hand", "httplib-json", "echo"),
    ("our HTTP layer alone, echo", "http-layer", "echo"),
    ("shared_tensor, inline function", "ours 5", "echo"),
    ("shared_tensor, worker function", "ours 5", "echo_worker"),
]


@contextlib.contextmanager
def server(command: Sequence[str | pathlib.Path]) -> Iterator[int]:
    """Yields the port of the server that `command` starts, and ends it by SIGTERM."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().strip().rsplit(":", 1)[-1])
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def call(port: int, method: str, times: int) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[12345]}}'
    request = (
        f"POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            connection.sendall(request)
            answer = b""
            while b"12345" not in answer:
                received = connection.recv(65536)
                if not received:
                    raise SystemExit(f"the server closed the connection after {answer!r}")
                answer += received


def instructions(bench: str, role: str, method: str, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}"]
        with server([*tool, bench, "--serve", *role.split()]) as port:
            call(port, method, times)
        found = re.search(r"Collected : (\d+)", log.read_text())
        assert found is not None, log.read_text()
        return int(found.group(1))


def system_calls(bench: str, role: str, method: str, times: int) -> collections.Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace")
        with server(["strace", "-f", "-o", trace, bench, "--serve", *role.split()]) as port:
            call(port, method, times)
        # "123 recvfrom(...", but not "123 <... recvfrom resumed>"
        return collections.Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", help="the program shared_tensor_bench")
    bench = parser.parse_args().bench
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print("|  | instructions | system calls |\n|---|---|---|")
    for name, role, method in ROWS:
        counts = [instructions(bench, role, method, times) for times in (FEW, MANY)]
        few, many = (system_calls(bench, role, method, times) for times in (FEW, MANY))
        each = {one: (many[one] - few[one]) / (MANY - FEW) for one in many}
        shown = ", ".join(
            f"{one} {rate:.2f}" for one, rate in sorted(each.items(), key=lambda item: -item[1]) if rate >= 0.01
        )
        print(f"| {name} | {(counts[1] - counts[0]) / (MANY - FEW):,.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
