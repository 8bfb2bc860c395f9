"""Two network namespaces with a link between them, as two hosts: the daemon in one, its clients in the other."""

import array
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SERVER, CLIENT, PLUGIN = (pathlib.Path(word) for word in sys.argv[1:4])
NEAR, FAR = "st-near-" + str(os.getpid()), "st-far-" + str(os.getpid())
LINKS = {NEAR: "stn" + str(os.getpid()), FAR: "stf" + str(os.getpid())}
ADDRESS = "10.211.9.2"
TOKEN = "0123456789abcdef" * 2
LIMIT_S = 60


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def tear_down():
    for space in (NEAR, FAR):
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def why_not():
    """Makes the two hosts; the reason where that cannot be."""
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("ip") is None:
        return "it needs iproute2"
    try:
        for space in (NEAR, FAR):
            ip("netns", "add", space)
        ip("link", "add", LINKS[NEAR], "type", "veth", "peer", "name", LINKS[FAR])
        for number, space in enumerate((NEAR, FAR), start=1):
            ip("link", "set", LINKS[space], "netns", space)
            ip("-n", space, "addr", "add", f"10.211.9.{number}/24", "dev", LINKS[space])
            ip("-n", space, "link", "set", LINKS[space], "up")
            ip("-n", space, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        tear_down()
        return "no network namespaces here: " + error.stderr.strip()
    return None


def on(space, *words, **options):
    return subprocess.Popen(["ip", "netns", "exec", space, *map(str, words)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.work = pathlib.Path(cls.folder.name)
        tokens, ready = cls.work / "tokens", cls.work / "ready"
        tokens.write_text("tester:" + TOKEN + "\n")
        tokens.chmod(0o600)
        cls.daemon = on(FAR, SERVER, "--host", ADDRESS, "--port", 2537, "--token-file", tokens, "--load", PLUGIN,
                        "--ready-file", ready, "--local-socket", cls.work / "channel")
        cls.addClassCleanup(cls.stop_daemon)
        limit = time.monotonic() + LIMIT_S
        while not ready.exists():
            if cls.daemon.poll() is not None or time.monotonic() > limit:
                raise AssertionError("the daemon did not start: " + cls.daemon.communicate()[1])
            time.sleep(0.05)

    @classmethod
    def stop_daemon(cls):
        cls.daemon.terminate()
        cls.daemon.communicate(timeout=LIMIT_S)

    def start_client(self, *words, token=TOKEN):
        environment = {**os.environ, "SHARED_TENSOR_URL": f"http://{ADDRESS}:2537", "SHARED_TENSOR_TOKEN": token}
        return on(NEAR, CLIENT, *words, env=environment)

    def client(self, *words, token=TOKEN):
        run = self.start_client(*words, token=token)
        out, err = run.communicate(timeout=LIMIT_S)
        return run.returncode, out, err

    def succeeds(self, *words):
        code, out, err = self.client(*words)
        self.assertEqual(code, 0, f"{words}: {out}{err}")
        return out

    def numbers(self, name, mib):
        """A .npy file of float32."""
        count = mib << 18
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % count
        head += " " * (-(len(head) + 11) % 64) + "\n"
        path = self.work / name
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
            for first in range(0, count, 1 << 18):
                array.array("f", range(first, first + (1 << 18))).tofile(file)
        return path

    def set_link(self, state):
        ip("-n", FAR, "link", "set", LINKS[FAR], state)

    def test_calls_and_streams_cross(self):
        self.assertEqual(float(self.succeeds("call", "add", 1, 2)), 3)
        self.assertEqual(self.succeeds("stream", "count", "up_to=3").split()[:3], ["1", "2", "3"])

    def test_who_has_no_token_gets_nothing(self):
        for token in ("", "f" * 32):
            code, out, err = self.client("call", "add", 1, 2, token=token)
            self.assertNotEqual(code, 0)
            self.assertEqual(out, "")
            self.assertIn("Not authorised", err)

    def test_a_daemon_without_tokens_does_not_listen_here(self):
        rejected = on(FAR, SERVER, "--host", ADDRESS, "--port", 0, "--local-socket", self.work / "other")
        _, err = rejected.communicate(timeout=LIMIT_S)
        self.assertNotEqual(rejected.returncode, 0)
        self.assertIn("token", err)

    def test_tensors_go_as_bytes_and_arrive_as_they_were(self):
        source = self.numbers("x.npy", 16)
        for coding in ("none", "zstd"):
            self.succeeds("put", source, "--name", "x", "--compression", coding)
            self.succeeds("get", "x", "--output", self.work / "y.npy", "--compression", coding)
            self.assertEqual((self.work / "y.npy").read_bytes(), source.read_bytes())
        self.assertRegex(self.succeeds("doctor"), r"(?m)^\s*body\s+yes$")

    def test_a_link_that_breaks_in_the_middle_costs_time_only(self):
        source = self.numbers("big.npy", 64)
        self.succeeds("put", source, "--name", "big")
        bound = subprocess.run(["tc", "-n", FAR, "qdisc", "replace", "dev", LINKS[FAR], "root", "tbf", "rate", "100mbit",
                                "burst", "1mb", "latency", "50ms"], capture_output=True, text=True)
        if bound.returncode != 0:
            self.skipTest("the link's rate cannot be bounded: " + bound.stderr)
        received = pathlib.Path(f"/sys/class/net/{LINKS[NEAR]}/statistics/rx_bytes")

        def bytes_received():
            return int(ip("netns", "exec", NEAR, "cat", received).stdout)

        before = bytes_received()
        pull = self.start_client("get", "big", "--output", self.work / "z.npy")
        limit = time.monotonic() + LIMIT_S
        while bytes_received() - before < 16 << 20 and time.monotonic() < limit:
            time.sleep(0.01)
        self.set_link("down")
        self.assertIsNone(pull.poll(), "the pull was over too early for this test")
        time.sleep(1)
        self.set_link("up")
        out, err = pull.communicate(timeout=2 * LIMIT_S)
        self.assertEqual(pull.returncode, 0, out + err)
        self.assertEqual((self.work / "z.npy").read_bytes(), source.read_bytes())


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        print("skipped:", reason)
        sys.exit(77)
    try:
        sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1)
    finally:
        tear_down()
