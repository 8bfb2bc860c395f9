"""Several hosts that pull one set together: network namespaces on a bridge, each with a link of limited rate.

As a test: a few hosts, a relay that is killed, and a relay that sends other bytes. As a benchmark, with --bench: eight
hosts at 100 Mbit/s and 256 MiB, beside one transfer and beside the same pulls without a swarm."""

import argparse
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from bridge import Bridge, ip  # noqa: E402

NAME = f"st{os.getpid()}"
TOKEN = "0123456789abcdef" * 2
LIMIT_S = 200
PLACE = None


class Hosts:
    """Host 0 has the server. All are on one bridge, in a namespace of its own; tbf limits each direction of each link."""

    def __init__(self, count, rate):
        self.bridge = Bridge(NAME, count + 1, "10.211.11")
        self.spaces = self.bridge.spaces
        for space, link, port in zip(self.spaces, self.bridge.links, self.bridge.ports, strict=True):
            for where, end in ((space, link), (self.bridge.switch, port)):
                limit = ["rate", rate, "burst", "256kb", "latency", "50ms"]
                subprocess.run(["tc", "-n", where, "qdisc", "add", "dev", end, "root", "tbf", *limit], check=True)

    @staticmethod
    def address(i):
        return f"10.211.11.{i + 1}"

    def sent(self):
        """Bytes that the server has sent."""
        return self.count(0, "tx_bytes")

    def received(self, i):
        """Bytes that this host has received."""
        return self.count(i, "rx_bytes")

    def count(self, i, name):
        counter = f"/sys/class/net/{NAME}h{i}/statistics/{name}"
        return int(self.on(i, "cat", counter, stdout=subprocess.PIPE).communicate()[0])

    def on(self, i, *words, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[i], *map(str, words)], **options)

    def remove(self):
        self.bridge.remove()


def why_not():
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "it needs iproute2"
    try:
        ip("netns", "add", NAME)
        ip("netns", "del", NAME)
    except subprocess.CalledProcessError as error:
        return "no network namespaces here: " + error.stderr.strip()
    return None


class Weights:
    """A server on host 0 with the set `weights`, and receivers on the other hosts."""

    def __init__(self, hosts, folder, mib):
        self.hosts, self.folder = hosts, pathlib.Path(folder)
        tokens, ready = self.folder / "tokens", self.folder / "ready"
        tokens.write_text(f"tester:{TOKEN}\n")
        tokens.chmod(0o600)
        options = ["--host", hosts.address(0), "--port", "2537", "--token-file", tokens, "--ready-file", ready]
        with (self.folder / "log").open("w") as log:
            self.server = hosts.on(0, PLACE.daemon, *options, "--local-socket", "none", stderr=log)
        end = time.monotonic() + LIMIT_S
        while not ready.exists():
            if self.server.poll() is not None or time.monotonic() > end:
                raise AssertionError((self.folder / "log").read_text())
            time.sleep(0.05)
        self.file = self.folder / "weights.safetensors"
        half = mib << 19
        header = {
            name: {"dtype": "U8", "shape": [half], "data_offsets": [half * i, half * (i + 1)]}
            for i, name in enumerate("ab")
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with self.file.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _ in range(mib):
                file.write(random.randbytes(1 << 20))
        self.client(0, "put", self.file).wait()
        self.client(0, "get", "weights", "--output", self.file).wait()  # as the server writes it

    def client(self, i, *words):
        environment = {**os.environ, "SHARED_TENSOR_URL": f"http://{self.hosts.address(0)}:2537"}
        environment["SHARED_TENSOR_TOKEN"] = TOKEN
        with (self.folder / f"client-{i}").open("w") as log:
            return self.hosts.on(i, PLACE.client, *words, env=environment, stdout=subprocess.DEVNULL, stderr=log)

    def output(self, i):
        return self.folder / f"got-{i}.safetensors"

    def pull(self, i, *options):
        return self.client(i, "pull", "weights", "--output", self.output(i), *options)

    def stop(self):
        self.server.terminate()
        self.server.wait()


def same(one, other):
    def digest(path):
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest() if sys.version_info >= (3, 11) else file.read()

    return digest(one) == digest(other)


class Swarm(unittest.TestCase):
    HOSTS, MIB, RATE = 4, 24, "100mbit"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.hosts = Hosts(self.HOSTS, self.RATE)
        self.addCleanup(self.hosts.remove)
        self.weights = Weights(self.hosts, folder.name, self.MIB)
        self.addCleanup(self.weights.stop)

    def check(self, receivers):
        for i, process in receivers.items():
            said = (self.weights.folder / f"client-{i}").read_text
            self.assertEqual(process.wait(LIMIT_S), 0, said())
            self.assertTrue(same(self.weights.output(i), self.weights.file), said())

    def sent_for(self, work):
        before = self.hosts.sent()
        work()
        return (self.hosts.sent() - before) / (self.MIB << 20)

    def test_the_file_leaves_the_server_about_once(self):
        everybody = range(1, self.HOSTS + 1)
        times = self.sent_for(lambda: self.check({i: self.weights.pull(i, "--swarm") for i in everybody}))
        self.assertLess(times, 2)  # without a swarm: 4
        self.assertGreater(times, 0.99)

    def test_a_receiver_that_is_killed_harms_nobody(self):
        before, end = self.hosts.received(2), time.monotonic() + LIMIT_S
        receivers = {i: self.weights.pull(i, "--swarm") for i in range(1, self.HOSTS + 1)}
        killed = receivers.pop(2)
        while self.hosts.received(2) - before < 4 << 20:
            self.assertLess(time.monotonic(), end, "the pull does not begin")
            time.sleep(0.01)
        for child in self.children(killed.pid):
            os.kill(child, signal.SIGKILL)
        killed.kill()
        self.assertNotEqual(killed.wait(), 0)
        self.check(receivers)

    @staticmethod
    def children(pid):
        """ip becomes the program itself, so usually there are none."""
        with contextlib.suppress(OSError):
            return [int(one) for one in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def test_a_relay_that_sends_other_bytes_is_found_and_left_out(self):
        asked = self.weights.folder / "asked"
        liar = self.hosts.on(1, sys.executable, "-B", __file__, "--lie", self.hosts.address(0), asked)
        self.addCleanup(liar.wait)
        self.addCleanup(liar.kill)
        end = time.monotonic() + LIMIT_S
        while not asked.exists() and time.monotonic() < end:
            time.sleep(0.05)
        receivers = {i: self.weights.pull(i, "--swarm") for i in range(2, self.HOSTS + 1)}
        self.check(receivers)
        said = "".join((self.weights.folder / f"client-{i}").read_text() for i in receivers)
        self.assertIn("other bytes than the server has", said)
        self.assertLessEqual(len(asked.read_text().split()), 4 * len(receivers))  # as many at once from one relay


class Liar(http.server.BaseHTTPRequestHandler):
    """Says that it has all pieces, and sends noise."""

    def do_GET(self):
        with pathlib.Path(PLACE.lie[1]).open("a") as log:
            log.write(self.path + "\n")
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 20))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(random.randbytes(1 << 20))

    def log_message(self, *_):
        pass


def lie():
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Liar)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report = {"port": server.server_port, "key": "0123456789abcdef" * 2, "got": list(range(10_000)), "lost": []}
    while True:
        request = urllib.request.Request(
            f"http://{PLACE.lie[0]}:2537/tensors/weights.safetensors",
            json.dumps(report).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            method="POST",
        )
        answer = json.load(urllib.request.urlopen(request))
        report["receiver"] = answer["receiver"]
        pathlib.Path(PLACE.lie[1]).touch()
        time.sleep(0.2)


def bench():
    count, mib, rate = 8, PLACE.mib, "100mbit"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        hosts = Hosts(count, rate)
        weights = None
        try:
            weights = Weights(hosts, folder, mib)

            def timed(what, receivers, *options):
                before, start = hosts.sent(), time.monotonic()
                processes = {i: weights.pull(i, *options) for i in receivers}
                ends = []
                for process in processes.values():
                    if process.wait() != 0:
                        raise RuntimeError(f"{what}: a receiver failed")
                    ends.append(time.monotonic() - start)
                sent = (hosts.sent() - before) / (mib << 20)
                for i in receivers:
                    if not same(weights.output(i), weights.file):
                        raise RuntimeError(f"{what}: receiver {i} has other bytes")
                    weights.output(i).unlink()
                print(f"{what:48} {max(ends):7.1f} s   the server sent the file {sent:.2f} times", flush=True)
                return max(ends)

            everybody = range(1, count + 1)
            one = timed("one receiver", [1])
            last = timed(f"{count} receivers, --swarm: the last", everybody, "--swarm")
            print(f"{'':48} {last / one:7.2f} times one transfer", flush=True)
            if PLACE.all:
                timed(f"{count} receivers without a swarm: the last", everybody)
        finally:
            if weights is not None:
                weights.stop()
            hosts.remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon")
    parser.add_argument("--client")
    parser.add_argument("--lie", nargs=2, help="used by the test itself")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--all", action="store_true", help="with --bench: also without a swarm")
    parser.add_argument("--mib", type=int, default=256)
    PLACE, rest = parser.parse_known_args()
    if PLACE.lie:
        lie()
    if reason := why_not():
        print(reason)
        sys.exit(77)
    if PLACE.bench:
        bench()
    else:
        unittest.main(argv=[__file__, *rest])
