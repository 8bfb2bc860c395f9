"""shared-tensor-keeper with a server, for the tests beside it, and the programs that these are given."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_port

PATIENCE = 60  # seconds, for events that have to come: the machine may be busy
PLACE = argparse.Namespace()  # the programs, and how often to kill


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in time")
        time.sleep(0.01)
    return found


class Keeper:
    """A keeper and its server. The server has the same port in each of its lives."""

    def __init__(self, test, *options, keeper=(), command=None, listens=False, preload=""):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = free_port()
        self.ledger = self.folder / "ledger"
        if listens:
            keeper = (*keeper, "--listen", f"127.0.0.1:{self.port}", "--listen", str(self.folder / "server.sock"))
        mine = ("SHARED_TENSOR_", "RANK", "LOCAL_RANK", "LISTEN_", "NOTIFY_", "FDSTORE", "WATCHDOG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        options = [option.format(folder=self.folder) for option in options]
        server = [PLACE.daemon, "--load", PLACE.plugin, *options]
        if "--listen" not in keeper:
            server += ["--port", str(self.port)]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [PLACE.keeper, *keeper, "--", *(command or server)],
                env=kept | {"LEDGER": str(self.ledger), "TMPDIR": folder.name, "LD_PRELOAD": preload},
                stderr=log,
            )
        test.addCleanup(self.end)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self):
        return (self.folder / "log").read_text()

    def await_log(self, text):
        """The server's log is written by a thread of its own: a line may come after what it tells of."""
        eventually(lambda: text in self.log(), f"the line '{text}' in the log")

    def pid(self):
        """Of the server; 0 while there is none."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def request(self, method, path, body=None, headers=None):
        """Once: like a client that does not repeat anything."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def call(self, method, params=None, **headers):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return json.loads(self.request("POST", "/jsonrpc", body, {"Content-Type": "application/json"} | headers)[2])

    def serves(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/readyz")[0] == 200

    def await_server(self):
        eventually(self.serves, f"a server at port {self.port}: {self.log()}")
        return self

    def kill(self):
        """Kills the server, and waits for the next one."""
        before = self.pid()
        os.kill(before, signal.SIGKILL)
        eventually(lambda: self.pid() not in (0, before), "the next start")
        return self.await_server()

    def state(self):
        return self.call("server.info")["result"]["state"]

    def entries(self):
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def put(self, name, raw, **query):
        """A tensor of bytes as a safetensors file."""
        header = json.dumps({name: {"dtype": "U8", "shape": [len(raw)], "data_offsets": [0, len(raw)]}}).encode()
        header += b" " * (-len(header) % 8)
        path = f"/tensors/{name}.safetensors" + "".join(f"?{key}={value}" for key, value in query.items())
        status, _, body = self.request("PUT", path, len(header).to_bytes(8, "little") + header + raw)
        answer = json.loads(body)
        if status not in (200, 201):
            raise AssertionError(answer)
        return answer["version"]

    def get(self, name):
        """The tensor's bytes, version and tag; None if there is no such name."""
        status, headers, body = self.request("GET", f"/tensors/{name}.raw")
        return (body, int(headers["Shared-Tensor-Version"]), headers["ETag"]) if status == 200 else None


def main():
    """Runs the tests of the script that calls it."""
    options = argparse.ArgumentParser()
    for option in ("--keeper", "--daemon", "--plugin", "--client", "--tool"):
        options.add_argument(option, required=True)
    options.add_argument("--failing-fork")
    options.add_argument("--kills", type=int, default=6)
    rest = options.parse_known_args(namespace=PLACE)[1]
    unittest.main(argv=[sys.argv[0], *rest])
