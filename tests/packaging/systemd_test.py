"""Boots systemd in the Debian that debian_test.py made, in namespaces of its own, and runs the installed daemon under
the installed units. Needs root and cgroups of version 2. scripts/test --full runs it after debian_test.py."""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

PLACE = None
PATIENCE = 120  # seconds
TCP, UNIX = "http://127.0.0.1:2537", "unix:/run/shared-tensor/server.sock"
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
# In the new namespaces: mounts what systemd expects of a container, and becomes systemd.
BOOT = """set -e
ip link set lo up
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm
mount -t tmpfs tmpfs dev/shm
exec env container=other chroot "$1" /lib/systemd/systemd --system --log-target=console --show-status=no"""


def why_not():
    if os.geteuid() != 0:
        return "it needs root"
    if not cgroups():
        return "no cgroups of version 2 are mounted"
    if not (PLACE.root / "usr/bin/shared-tensor-server").exists():
        return f"{PLACE.root} holds no Debian with the packages: run debian_test.py"
    return None


def cgroups():
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    return next((pathlib.Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in time")
        time.sleep(0.1)
    return found


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "systemd", "systemd-sysv", "dbus"]
        subprocess.run(["chroot", PLACE.root, *install], check=True, env=CLEAN, stdout=subprocess.DEVNULL)
        programs = PLACE.root / "opt/tests"
        programs.mkdir(parents=True, exist_ok=True)
        for file in ("integration/service/libledger_plugin.so", "integration/service/ledger_client",
                     "hosts/libplain_plugin.so", "hosts/receipt_client"):  # fmt: skip
            copy = pathlib.Path(shutil.copy(PLACE.build / "tests" / file, programs))
            copy.chmod(0o755)
        cls.write(
            "etc/shared_tensor.toml",
            'unix-socket = "/run/shared-tensor/server.sock"\n'
            'load = ["/opt/tests/libledger_plugin.so", "/opt/tests/libplain_plugin.so?processes=2"]\n',
        )
        drop_in = "[Service]\nEnvironment=LEDGER=/run/shared-tensor/ledger\nWatchdogSec=10s\n"
        cls.write("etc/systemd/system/shared-tensor-server.service.d/test.conf", drop_in)
        cls.boot()

    @classmethod
    def write(cls, path, text):
        file = PLACE.root / path
        before = file.read_text() if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        cls.addClassCleanup(file.unlink if before is None else lambda: file.write_text(before))

    @classmethod
    def boot(cls):
        group = cgroups() / f"shared_tensor_test_{os.getpid()}"
        group.mkdir()
        cls.addClassCleanup(cls.remove_group, group)
        log = (PLACE.root.parent / "systemd.log").open("w")
        cls.addClassCleanup(log.close)
        spaces = ["--pid", "--fork", "--kill-child", "--mount", "--net", "--uts", "--ipc", "--cgroup"]
        enter = f'echo $$ > "{group}/cgroup.procs" && exec unshare {" ".join(spaces)} sh -c "$1" sh "$2"'
        cls.unshare = subprocess.Popen(
            ["sh", "-c", enter, "sh", BOOT, PLACE.root], env=CLEAN, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        cls.addClassCleanup(cls.unshare.wait)
        cls.addClassCleanup(cls.unshare.kill)  # and all processes of its PID namespace
        children = pathlib.Path(f"/proc/{cls.unshare.pid}/task/{cls.unshare.pid}/children")
        cls.init = eventually(lambda: children.read_text().strip(), "the start of systemd")
        eventually(lambda: cls.systemctl("is-system-running").stdout.strip() in ("running", "degraded"), "the boot")

    @staticmethod
    def remove_group(group):
        folders = sorted((folder for folder in group.rglob("*") if folder.is_dir()), reverse=True)
        for folder in [*folders, group]:
            eventually(lambda folder=folder: not (folder / "cgroup.procs").read_text(), "the end of the processes")
            folder.rmdir()

    @classmethod
    def entering(cls, *command):
        return ["nsenter", "-t", cls.init, "-p", "-m", "-n", "-u", "-i", "-r", "-w", *map(str, command)]

    @classmethod
    def run_inside(cls, *command):
        return subprocess.run(cls.entering(*command), env=CLEAN, capture_output=True, text=True, timeout=PATIENCE)

    @classmethod
    def systemctl(cls, *words):
        return cls.run_inside("systemctl", *words)

    def check(self, *command):
        done = self.run_inside(*command)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def show(self, unit, name):
        return self.check("systemctl", "show", "--value", "-p", name, unit).strip()

    def tearDown(self):
        self.systemctl("stop", "shared-tensor-server.socket", "shared-tensor-server.service", "shared-tensor-server@*")
        self.run_inside("rm", "-f", "/run/shared-tensor/ledger")

    def test_the_first_client_starts_the_daemon_which_shares_memory(self):
        self.check("systemctl", "start", "shared-tensor-server.socket")
        self.assertEqual(self.show("shared-tensor-server", "ActiveState"), "inactive")
        self.check("shared-tensor", "--url", UNIX, "functions")
        self.assertEqual(self.show("shared-tensor-server", "ActiveState"), "active")
        self.assertEqual(self.check("/opt/tests/receipt_client", UNIX), "2000 shm for 2, copied 0\n")

    def test_no_call_is_lost_and_none_runs_twice_while_systemd_restarts_the_daemon(self):
        self.check("systemctl", "start", "shared-tensor-server.socket")
        client = subprocess.Popen(
            self.entering("/opt/tests/ledger_client", TCP),
            env=CLEAN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4):
            time.sleep(0.5)
            self.check("systemctl", "restart", "shared-tensor-server.service")
        answers, errors = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 0, errors)
        runs = collections.Counter(self.check("cat", "/run/shared-tensor/ledger").split())
        self.assertGreater(len(runs), 10)
        self.assertEqual(runs, collections.Counter(answers.split()))

    def test_named_tensors_and_keys_outlive_the_process(self):
        header = '{"w":{"dtype":"U8","shape":[200000],"data_offsets":[0,200000]}}'
        header += " " * (-len(header) % 8)
        self.write("opt/tests/w.safetensors", chr(len(header)) + "\0" * 7 + header + "w" * 200_000)
        call = ("shared-tensor", "--url", TCP)
        enter = (*call, "call", "enter", "once", "--key", "k")
        self.check("systemctl", "start", "shared-tensor-server.service")
        self.check(*call, "put", "/opt/tests/w.safetensors")
        before = self.check(*call, "tensors"), self.check(*enter)
        for end in (("kill", "-s", "KILL", "shared-tensor-server.service"), ("restart", "shared-tensor-server.service")):
            pid = self.show("shared-tensor-server", "MainPID")
            self.check("systemctl", *end)
            eventually(lambda pid=pid: self.show("shared-tensor-server", "MainPID") not in ("0", pid), "a start")
            eventually(lambda: self.show("shared-tensor-server", "ActiveState") == "active", "the next start")
            self.assertEqual((self.check(*call, "tensors"), self.check(*enter)), before)
            self.check(*call, "get", "w", "-o", "/run/shared-tensor/w.safetensors")
        self.assertEqual(self.check("cat", "/run/shared-tensor/ledger").split().count("once"), 1)

    def test_systemd_restarts_a_daemon_that_no_longer_answers(self):
        self.check("systemctl", "start", "shared-tensor-server.service")
        pid = self.show("shared-tensor-server", "MainPID")
        time.sleep(12)  # more than the watchdog's limit
        self.assertEqual(self.show("shared-tensor-server", "MainPID"), pid)
        self.check("sh", "-c", f"kill -STOP {pid}")
        eventually(lambda: self.show("shared-tensor-server", "NRestarts") == "1", "a restart")
        eventually(lambda: self.show("shared-tensor-server", "ActiveState") == "active", "the next start")

    def test_there_is_a_daemon_for_each_gpu(self):
        self.check("systemctl", "start", "shared-tensor-server@0", "shared-tensor-server@1")
        for gpu in (0, 1):
            url = f"http://127.0.0.1:{2537 + gpu}"
            self.assertIn("shop.twice", self.check("shared-tensor", "--url", url, "functions"))
            socket = f"unix:/run/shared-tensor-{gpu}/server.sock"
            self.assertEqual(self.check("/opt/tests/receipt_client", socket), "2000 shm for 2, copied 0\n")
            pid = self.show(f"shared-tensor-server@{gpu}", "MainPID")
            self.assertIn(f"CUDA_VISIBLE_DEVICES={gpu}\0", self.check("cat", f"/proc/{pid}/environ"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("root", "build"):
        parser.add_argument(f"--{argument}", type=pathlib.Path, required=True)
    PLACE = parser.parse_args()
    PLACE.root = PLACE.root.resolve()
    if REASON := why_not():
        print(REASON)
        sys.exit(77)
    unittest.main(argv=["systemd_test"])
