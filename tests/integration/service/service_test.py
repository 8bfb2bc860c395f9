"""The daemon as a service: what it tells its manager, the sockets that it gets, and restarts in which no call is lost.
The test is the manager; systemd-socket-activate and systemd-analyze are asked where they are installed."""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_port

PATIENCE = 60  # seconds, for events that have to come: the machine may be busy
PLACE = None
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in time")
        time.sleep(0.02)
    return found


def call(connection, method, *params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection.request("POST", "/jsonrpc", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


def listening(family, address):
    server = socket.socket(family)
    server.bind(address)
    server.listen(128)
    return server


class Service(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ledger = self.folder / "ledger"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.bind(str(self.folder / "notify"))
        self.manager.settimeout(PATIENCE)

    def environment(self, **variables):
        mine = ("SHARED_TENSOR_", "RANK", "LOCAL_RANK", "LISTEN_", "NOTIFY_", "WATCHDOG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        return kept | {"LEDGER": str(self.ledger), "NOTIFY_SOCKET": str(self.folder / "notify")} | variables

    def start(self, *options, sockets=(), **variables):
        """The way in which systemd starts a service: its sockets are the descriptors from 3 on."""
        if sockets:
            variables = {"LISTEN_FDS": str(len(sockets)), **variables}

        def take_sockets():
            high = [os.dup2(one.fileno(), 100 + i) for i, one in enumerate(sockets)]
            for i, descriptor in enumerate(high):
                os.dup2(descriptor, 3 + i)
                os.close(descriptor)

        # The PID in LISTEN_PID is known only in the process itself.
        script = 'LISTEN_PID=$$ exec "$@"' if sockets else 'exec "$@"'
        log = (self.folder / "log").open("a")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", PLACE.daemon, "--port", "0", "--load", PLACE.plugin, *options],
            env=self.environment(**variables),
            stderr=log,
            close_fds=False,
            preexec_fn=take_sockets,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()

    def log(self):
        return (self.folder / "log").read_text()

    def notice(self):
        return self.manager.recv(4096).decode().splitlines()

    def await_notice(self, wanted):
        while wanted not in (notice := self.notice()):
            pass
        return notice

    def stop(self, process):
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0, self.log())

    def test_the_manager_learns_when_the_daemon_serves_and_when_it_ends(self):
        process = self.start()
        ready, status = self.notice()
        self.assertEqual(ready, "READY=1")
        port = int(status.rsplit(":", 1)[1])
        self.assertEqual(call(http.client.HTTPConnection("127.0.0.1", port), "enter", "x")["result"], "x")
        process.terminate()
        self.assertEqual(self.notice()[0], "STOPPING=1")
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_notice_reaches_a_name_that_is_in_no_file_system(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            name = f"shared_tensor_test_{os.getpid()}"
            manager.bind("\0" + name)
            manager.settimeout(PATIENCE)
            self.start(NOTIFY_SOCKET="@" + name)
            self.assertIn(b"READY=1", manager.recv(4096))

    def test_a_daemon_that_does_not_start_never_says_that_it_serves(self):
        process = self.start("--load", "/nowhere.so")
        self.assertEqual(process.wait(PATIENCE), 1)
        self.manager.setblocking(False)
        self.assertRaises(BlockingIOError, self.manager.recv, 4096)

    def test_no_child_process_of_the_daemon_gets_the_variables_of_its_manager(self):
        self.start("--processes", "1", WATCHDOG_USEC="60000000", sockets=[self.tcp()])
        self.await_notice("READY=1")
        workers = [pid for pid in pathlib.Path("/proc").glob("[0-9]*") if self.is_worker(pid)]
        self.assertEqual(len(workers), 1)
        variables = (workers[0] / "environ").read_text()
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"):
            self.assertNotIn(name, variables)

    def is_worker(self, process):
        try:
            return (
                f"LEDGER={self.ledger}" in (process / "environ").read_text()
                and "--worker-group" in (process / "cmdline").read_text()
            )
        except OSError:
            return False

    def test_the_watchdog_is_told_only_while_the_server_answers(self):
        process = self.start(WATCHDOG_USEC="600000")
        self.await_notice("READY=1")
        for _ in range(3):
            self.assertEqual(self.notice(), ["WATCHDOG=1"])
        # The thread that accepts connections stands still; the process and its other threads run.
        poller = next(
            task
            for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
            if (task / "comm").read_text().strip() == "st-poller"
        )
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_SEIZE, int(poller.name), 0, 0) != 0:
            self.skipTest(f"cannot stop a thread here: {os.strerror(ctypes.get_errno())}")
        libc.ptrace(PTRACE_INTERRUPT, int(poller.name), 0, 0)
        os.waitpid(int(poller.name), 0x40000000)  # __WALL
        eventually(lambda: "the watchdog got no answer" in self.log(), "a warning of the watchdog")
        self.manager.setblocking(False)
        try:
            while True:
                self.manager.recv(4096)
        except BlockingIOError:
            pass
        self.manager.settimeout(1.5)  # more than the watchdog's limit
        self.assertRaises(TimeoutError, self.manager.recv, 4096)
        libc.ptrace(PTRACE_DETACH, int(poller.name), 0, 0)
        self.manager.settimeout(PATIENCE)
        self.assertEqual(self.notice(), ["WATCHDOG=1"])
        self.stop(process)

    def test_the_watchdog_of_a_server_that_wants_tokens_is_told_as_well(self):
        tokens = self.folder / "tokens"
        tokens.touch(0o600)
        tokens.write_text("a:" + 32 * "s" + "\n")
        self.start("--token-file", tokens, WATCHDOG_USEC="600000")
        self.await_notice("READY=1")
        self.assertEqual(self.notice(), ["WATCHDOG=1"])

    def tcp(self):
        server = listening(socket.AF_INET, ("127.0.0.1", 0))
        self.addCleanup(server.close)
        return server

    def unix(self, name="s.sock"):
        server = listening(socket.AF_UNIX, str(self.folder / name))
        self.addCleanup(server.close)
        return server

    def test_the_daemon_serves_on_the_sockets_that_it_gets_and_opens_none(self):
        tcp, unix, operations = self.tcp(), self.unix(), self.tcp()
        ready = self.folder / "ready"
        process = self.start(
            "--port",
            "1",
            "--host",
            "192.0.2.1",
            "--ready-file",
            ready,
            sockets=[unix, operations, tcp],
            LISTEN_FDNAMES="a:operations:b",
        )
        self.await_notice("READY=1")
        port = tcp.getsockname()[1]
        self.assertEqual(ready.read_text(), f"http://127.0.0.1:{port}\n")
        self.assertEqual(call(http.client.HTTPConnection("127.0.0.1", port), "enter", "x")["result"], "x")
        self.assertEqual(call(UnixConnection(unix.getsockname()), "enter", "y")["result"], "y")
        health = http.client.HTTPConnection("127.0.0.1", operations.getsockname()[1])
        health.request("GET", "/metrics")
        self.assertIn(b"shared_tensor", health.getresponse().read())
        health.close()
        self.stop(process)
        self.assertTrue((self.folder / "s.sock").is_socket(), "the socket's file belongs to the manager")

    def test_a_unix_socket_alone_is_enough(self):
        unix = self.unix()
        self.start(sockets=[unix])
        self.assertEqual(self.await_notice("READY=1")[1], f"STATUS=serves on unix:{unix.getsockname()}")
        self.assertEqual(call(UnixConnection(unix.getsockname()), "enter", "y")["result"], "y")

    def test_sockets_for_another_process_are_not_taken(self):
        tcp = self.tcp()
        self.start(LISTEN_PID="1", LISTEN_FDS="1")
        self.assertNotIn(f":{tcp.getsockname()[1]}", self.await_notice("READY=1")[1])

    def test_a_socket_that_cannot_be_used_is_an_error_of_one_line(self):
        everybody = listening(socket.AF_INET, ("0.0.0.0", 0))
        idle = socket.socket()
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        unnamed = listening(socket.AF_UNIX, f"\0shared_tensor_test_{os.getpid()}_s")
        for sockets, variables, word in (
            ([everybody], {}, "without a token"),
            ([idle], {}, "does not listen"),
            ([datagrams], {}, "no stream socket"),
            ([unnamed], {}, "without a path"),
            ([self.tcp(), self.tcp()], {}, "two sockets of one kind"),
            ([self.unix("o.sock")], {"LISTEN_FDNAMES": "operations"}, "not a Unix socket"),
            ([], {"LISTEN_FDS": "many"}, "LISTEN_FDS"),
            ([], {"WATCHDOG_USEC": "1s"}, "WATCHDOG_USEC"),
        ):
            with self.subTest(word):
                (self.folder / "log").unlink(missing_ok=True)
                process = self.start("--log-level", "error", sockets=sockets, **variables)
                self.assertEqual(process.wait(PATIENCE), 1)
                self.assertIn(word, self.log())
                self.assertEqual(self.log().count("\n"), 1)
        for one in (everybody, idle, datagrams, unnamed):
            one.close()

    def test_clients_of_a_daemon_that_ends_wait_for_the_next_one(self):
        tcp = self.tcp()
        process = self.start(sockets=[tcp])
        self.await_notice("READY=1")
        self.stop(process)
        early = http.client.HTTPConnection(*tcp.getsockname(), timeout=PATIENCE)
        early.connect()  # no process serves
        self.start(sockets=[tcp])
        self.assertEqual(call(early, "enter", "x")["result"], "x")

    @staticmethod
    def has(process, socket):
        """Whether the process has a descriptor of this socket."""
        found = set()
        for descriptor in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed just now
                found.add(os.readlink(descriptor))
        return f"socket:[{os.fstat(socket.fileno()).st_ino}]" in found

    def test_a_daemon_that_ends_answers_its_calls_and_leaves_new_clients_to_the_next_one(self):
        tcp = self.tcp()
        process = self.start(sockets=[tcp])
        self.await_notice("READY=1")
        with concurrent.futures.ThreadPoolExecutor() as threads:
            slow = threads.submit(call, http.client.HTTPConnection(*tcp.getsockname()), "enter", "slow", 1.0)
            eventually(self.ledger.exists, "the start of the call")
            process.terminate()
            eventually(lambda: not self.has(process, tcp), "the end of the daemon's listening")
            late = threads.submit(call, http.client.HTTPConnection(*tcp.getsockname()), "enter", "late")
            self.assertEqual(slow.result(PATIENCE)["result"], "slow")
            self.assertEqual(process.wait(PATIENCE), 0)
            self.assertFalse(late.done())
            self.start(sockets=[tcp])
            self.assertEqual(late.result(PATIENCE)["result"], "late")

    def test_no_call_is_lost_and_none_runs_twice_while_the_daemon_is_restarted(self):
        for kind in (self.tcp, self.unix):
            with self.subTest(kind.__name__):
                self.restart_often(kind())

    def await_calls(self, count):
        def entered():
            return self.ledger.read_bytes().count(b"\n")

        before = entered()
        eventually(lambda: entered() >= before + count, "calls")

    def restart_often(self, listener):
        self.ledger.write_text("")
        address = listener.getsockname()
        url = f"unix:{address}" if isinstance(address, str) else f"http://127.0.0.1:{address[1]}"
        process = self.start(sockets=[listener])
        self.await_notice("READY=1")
        with (self.folder / "answers").open("w") as answers:
            client = subprocess.Popen(
                [PLACE.client, url],
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=answers,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.addCleanup(client.stderr.close)
        self.addCleanup(self.end, client)
        for _ in range(6):
            self.await_calls(20)
            self.stop(process)
            process = self.start(sockets=[listener])
            self.await_notice("READY=1")
        client.stdin.close()
        self.assertEqual(client.wait(PATIENCE), 0, client.stderr.read())
        self.stop(process)
        answers = (self.folder / "answers").read_text().split()
        runs = collections.Counter(self.ledger.read_text().split())
        self.assertGreater(len(answers), 120)
        self.assertEqual(runs, collections.Counter(answers))  # each call ran once, and was answered once
        self.assertEqual(set(runs.values()), {1})

    @unittest.skipUnless(shutil.which("systemd-socket-activate"), "systemd is not installed")
    def test_the_first_client_starts_the_daemon(self):
        port = free_port()
        activator = subprocess.Popen(
            [
                "systemd-socket-activate",
                "--listen",
                f"127.0.0.1:{port}",
                "--fdname",
                "main",
                *(f"--setenv={name}={value}" for name, value in self.environment().items()),
                PLACE.daemon,
                "--load",
                PLACE.plugin,
            ],
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(self.end, activator)

        def connected():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                connection.connect()
                return connection
            except ConnectionRefusedError:
                return None

        self.assertEqual(call(eventually(connected, "a listening socket"), "enter", "x")["result"], "x")
        self.await_notice("READY=1")
        activator.send_signal(signal.SIGTERM)  # it has become the daemon
        self.assertEqual(activator.wait(PATIENCE), 0)


class Units(unittest.TestCase):
    """The units of deploy/systemd."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for unit in PLACE.units.glob("shared-tensor-server*"):
            text = unit.read_text().replace("/usr/bin/shared-tensor-server", str(PLACE.daemon))
            (self.folder / unit.name.replace("@", "@0")).write_text(text)

    @staticmethod
    def hardening(name):
        return (PLACE.units / name).read_text().split("# What the daemon may do.")[1]

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
    def test_systemd_finds_no_fault_in_the_units(self):
        units = sorted(self.folder.iterdir())
        self.assertEqual(len(units), 3)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
        ours = [line for line in done.stderr.splitlines() if "shared-tensor-server" in line]
        self.assertEqual((ours, done.returncode), ([], 0), done.stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
    def test_the_services_are_exposed_no_more_than_the_page_says(self):
        for service in self.folder.glob("*.service"):
            done = subprocess.run(
                ["systemd-analyze", "security", "--offline=yes", "--threshold=16", "--no-pager", service],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)

    def test_the_daemon_of_a_gpu_may_do_what_the_daemon_of_the_machine_may(self):
        self.assertEqual(
            self.hardening("shared-tensor-server.service"), self.hardening("shared-tensor-server@.service")
        )

    @unittest.skipUnless(shutil.which("systemctl"), "systemd is not installed")
    def test_the_removal_of_the_package_disables_all_units(self):
        root = self.folder / "root"
        shutil.copytree(PLACE.units, root / "usr/lib/systemd/system")
        (root / "etc/systemd/system").mkdir(parents=True)
        names = ["shared-tensor-server.service", "shared-tensor-server.socket", "shared-tensor-server@3.service"]
        subprocess.run(["systemctl", f"--root={root}", "enable", *names], check=True, capture_output=True)
        self.assertEqual({link.name for link in root.glob("etc/**/shared-tensor*")}, set(names))
        removal = (PLACE.units.parent / "debian/prerm").read_text()
        for units in re.findall(r"systemctl disable (?:--now )?(.+?) \|\|", removal):
            subprocess.run(["systemctl", f"--root={root}", "disable", *units.split()], check=True, capture_output=True)
        self.assertEqual(list(root.glob("etc/**/shared-tensor*")), [])

    def test_the_daemon_starts_with_the_options_file_of_the_package(self):
        done = subprocess.run(
            [PLACE.daemon, "--config", PLACE.units.parent / "shared_tensor.toml", "--print-config"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('unix-socket = "/run/shared-tensor/server.sock"', done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("daemon", "plugin", "client", "units"):
        parser.add_argument(f"--{argument}", type=pathlib.Path, required=True)
    PLACE = parser.parse_args()
    unittest.main(argv=["service_test"])
