#!/usr/bin/env python3
"""Under each limit of the system the daemon answers GET /healthz throughout, rejects with a reason, and ends in order.

    limits_test.py --daemon PROGRAM --plugin PLUGIN [--only TEXT]

For each row of LIMITS a daemon is started under that limit and loaded: calls that wait, tensors that are held in shared
memory, idle connections, local channels without a session. Meanwhile /healthz is asked on new connections. A row whose
limit cannot be set here is skipped with the reason; ends with 77 where all were skipped.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from daemon import Daemon

PATIENCE = 60  # seconds, for what has to come: the machine may be busy
HEALTHY = 10   # seconds that /healthz may take at most; what it took is printed

MIB = 1 << 20


class Skipped(Exception):
    pass


class Group:
    """A control group of its own, v1 or v2."""

    def __init__(self, controller, values):
        roots = [pathlib.Path("/sys/fs/cgroup", controller), pathlib.Path("/sys/fs/cgroup")]
        name = f"shared_tensor_limits_{os.getpid()}"
        reason = "there are no control groups"
        for root in roots:
            self.path = root / name
            try:
                self.path.mkdir()
                for file, value in values.items():
                    if (self.path / file).exists():
                        (self.path / file).write_text(str(value))
                        return
                reason = f"{root} has no controller {controller}"
            except OSError as error:
                reason = f"a control group in {root}: {error.strerror}"
            with contextlib.suppress(OSError):
                self.path.rmdir()
        raise Skipped(reason)

    def enter(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)


@dataclasses.dataclass
class Limit:
    """How a row limits its daemon: before it starts, or once it serves."""
    name: str
    before: Callable = lambda: None
    group: Callable = lambda: None
    after: Callable = lambda pid: None


def files(count):
    return Limit(f"ulimit -n {count}", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)))


def announce_address_space():
    """So that the daemon finds a limit when it starts."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46 if hard == resource.RLIM_INFINITY else hard, hard))


def limit_address_space(pid):
    """So much more than it has now: libtorch alone takes gigabytes of addresses."""
    used = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 150 * MIB, used + 150 * MIB))


LIMITS = [
    files(256),
    files(1024),
    Limit("ulimit -v", before=announce_address_space, after=limit_address_space),
    Limit("pids.max 100", group=lambda: Group("pids", {"pids.max": 100})),
    Limit("512 MiB of memory", group=lambda: Group("memory", {"memory.max": 512 * MIB,
                                                              "memory.limit_in_bytes": 512 * MIB})),
]


class LimitedDaemon(Daemon):
    def __init__(self, program, plugin, limit):
        self.group = limit.group()

        def enter():
            if self.group:
                self.group.enter(os.getpid())
            limit.before()

        self.channels = tempfile.TemporaryDirectory()
        self.channel = self.channels.name + "/channel"
        super().__init__(program, "--load", plugin, "--drain-time", "5s", "--local-socket", self.channel, preexec_fn=enter)
        limit.after(self.process.pid)

    def close(self):
        super().close()
        if self.group:
            self.group.remove()
        self.channels.cleanup()

    def ask(self, method, path, body=None, headers=None, timeout=PATIENCE):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            with contextlib.suppress(BrokenPipeError):  # the server answered before it had the request
                connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def call(self, method, params, timeout=PATIENCE, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        status, text = self.ask("POST", "/jsonrpc", body, {"Content-Type": "application/json", **headers}, timeout)
        return status, json.loads(text)


class Health:
    """Asks again and again, on a new connection each time. From a process of its own: the many threads of this one make
    each other wait, and a client that connects and then sends nothing is pushed out by others when the server is full."""

    def __init__(self, daemon):
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(daemon, other))
        self.process.start()
        other.close()

    @staticmethod
    def run(daemon, pipe):
        slowest, count, fault = 0.0, 0, None
        while not pipe.poll(0.02):
            begin = time.monotonic()
            try:
                status, _ = daemon.ask("GET", "/healthz", timeout=HEALTHY)
                if status != 200:
                    fault = fault or f"/healthz answered {status}"
            except (OSError, http.client.HTTPException) as error:
                fault = fault or f"/healthz after {time.monotonic() - begin:.1f} s: {error!r}"
            slowest = max(slowest, time.monotonic() - begin)
            count += 1
        pipe.send((slowest, count, fault))

    def stop(self):
        self.pipe.send("stop")
        self.slowest, self.count, self.fault = self.pipe.recv()
        self.process.join()

    def close(self):
        self.process.kill()
        self.process.join()


def local_channel(path):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.settimeout(PATIENCE)
    channel.connect(path)
    return channel


def open_session(channel):
    channel.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session.open", "params": {}}).encode())
    return json.loads(channel.recv(65536))["result"]["session"]


def hold_tensors(daemon):
    """Takes tensors by shared memory, whatever was said against some of them, and lets go of them all; gives what was
    said first. Afterwards there is one to be had again."""
    def ramp(session, count):
        try:
            answer = daemon.call("ramp", [count], Shared_Tensor_Session=session, Shared_Tensor_Accept="shm")[1]
        except ConnectionError:  # even an answer takes some memory
            end = time.monotonic() + PATIENCE
            while "closed after an error" not in daemon.log():  # a thread of its own writes the log
                assert time.monotonic() < end, "a call was not answered\n" + daemon.log()
                time.sleep(0.01)
            return {"error": {"code": -32008, "data": "no answer"}}
        assert "result" in answer or answer["error"]["code"] in (-32001, -32006, -32008), answer
        return answer

    small = big = 0
    reason = ""
    with local_channel(daemon.channel) as channel:
        session = open_session(channel)
        for i in range(1200):
            answer = ramp(session, 100 if i % 2 else 100_000)
            if "result" in answer:
                small, big = small + i % 2, big + 1 - i % 2
            elif not reason:
                reason = f", first rejected after {small + big}: {json.dumps(answer['error']['data'])}"
    with local_channel(daemon.channel) as channel:
        session = open_session(channel)
        end = time.monotonic() + PATIENCE
        while "error" in (answer := ramp(session, 100_000)):
            assert time.monotonic() < end, f"still rejected when the tensors were let go of: {answer}"
            time.sleep(0.1)
    return f"{small} small and {big} big tensors{reason}"


def waiting_calls(daemon, count):
    """Calls that wait; gives how many ended how, by HTTP status."""
    outcomes, lock = {}, threading.Lock()

    def one():
        try:
            outcome = daemon.call("sleep", [3.0], Request_Timeout="4000")[0]
        except (OSError, ValueError) as error:
            outcome = type(error).__name__
        with lock:
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, outcomes


def check(program, plugin, limit):
    daemon = LimitedDaemon(program, plugin, limit)
    held = []
    health = Health(daemon)
    try:
        threads, outcomes = waiting_calls(daemon, 150)
        for _ in range(100):
            with contextlib.suppress(OSError):
                held.append(local_channel(daemon.channel))
        for _ in range(40):
            idle = socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE)
            held.append(idle)
        for thread in threads:
            thread.join()
        for idle in held:
            idle.close()
        held.clear()
        tensors = hold_tensors(daemon)
        threads, at_the_end = waiting_calls(daemon, 150)
        time.sleep(0.5)  # so that some of them wait; whichever do, what follows holds
        health.stop()
        assert health.fault is None, f"{limit.name}: {health.fault}\n{daemon.log()}"
        begin = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        code = daemon.process.wait(PATIENCE)
        took = time.monotonic() - begin
        for thread in threads:
            thread.join()
        assert code == 0, f"{limit.name}: exit code {code} after SIGTERM\n{daemon.log()}"
        assert "stopped" in daemon.log(), f"{limit.name}: it ended without a drain\n{daemon.log()}"
        assert set(outcomes) <= {200, 503}, f"{limit.name}: {outcomes}\n{daemon.log()}"
        print(f"{limit.name}: /healthz answered {health.count} times, the slowest took {health.slowest * 1000:.0f} ms; "
              f"calls {outcomes}; {tensors}; it ended in {took:.1f} s", flush=True)
    finally:
        for one in held:
            one.close()
        health.close()
        daemon.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    done = 0
    for limit in LIMITS:
        if arguments.only not in limit.name:
            continue
        try:
            check(arguments.daemon, arguments.plugin, limit)
            done += 1
        except Skipped as reason:
            print(f"{limit.name}: skipped: {reason}", flush=True)
    return 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
