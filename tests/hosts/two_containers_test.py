"""Two containers on one host, made without an engine: each has its own users, PIDs, mounts, network and root file
system (the one that deploy/container makes). They share only a folder with the server's Unix socket."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SERVER, CLIENT, PLUGIN, SCRIPT = (pathlib.Path(word) for word in sys.argv[1:5])
LIMIT_S = 60
UNSHARE = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--net",
    "--ipc",
    "--uts",
]
# In the new namespaces: mounts the shared folder and /proc, and runs a program in the container's root.
ENTER = (
    'mount --bind "$1" "$2/run/shared-tensor" && mount -t proc proc "$2/proc" && root=$2 && shift 2 '
    '&& exec chroot "$root" "$@"'
)


def why_not():
    if shutil.which("unshare") is None:
        return "it needs unshare of util-linux"
    tried = subprocess.run([*UNSHARE, "mount", "--bind", "/tmp", "/tmp"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode != 0 else None


class TwoContainers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.shared = self.folder / "shared"
        self.shared.mkdir()

    def make_root(self, program):
        root = self.folder / program.name
        subprocess.run([SCRIPT, root, program], check=True)
        return root

    def start(self, root, *command):
        return subprocess.Popen(
            [*UNSHARE, "sh", "-c", ENTER, "sh", self.shared, root, *command],
            env={},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_server(self):
        root = self.make_root(SERVER)
        shutil.copy(PLUGIN, root / "plugin.so")
        (root / "plugin.so").chmod(0o644)
        server = self.start(
            root,
            "/usr/bin/shared-tensor-server",
            "--host",
            "",
            "--unix-socket",
            "/run/shared-tensor/server.sock",
            "--ready-file",
            "/run/shared-tensor/ready",
            "--load",
            "/plugin.so",
        )
        self.addCleanup(self.stop, server)
        limit = time.monotonic() + LIMIT_S
        while not (self.shared / "ready").exists():
            if server.poll() is not None or time.monotonic() > limit:
                raise AssertionError("the daemon did not start: " + server.communicate()[1])
            time.sleep(0.05)
        return server

    @staticmethod
    def stop(process):
        process.kill()  # and its PID namespace with it
        process.communicate()

    def test_a_tensor_crosses_between_two_containers_without_a_copy(self):
        self.start_server()
        client = self.start(self.make_root(CLIENT), "/usr/bin/" + CLIENT.name, "unix:/run/shared-tensor/server.sock")
        self.addCleanup(self.stop, client)
        printed, errors = client.communicate(timeout=LIMIT_S)
        self.assertEqual((printed, client.returncode), ("2000 shm for 2, copied 0\n", 0), errors)

    def test_the_container_holds_the_server_and_its_libraries_only(self):
        root = self.make_root(SERVER)
        files = [file for file in root.rglob("*") if file.is_file()]
        programs = [file for file in files if file.parent.name in ("bin", "sbin")]
        self.assertEqual([file.name for file in programs], [SERVER.name])
        others = {file.name for file in files if ".so" not in file.name} - {SERVER.name}
        self.assertEqual(others, {"passwd", "group", "hosts"})
        self.assertLess(sum(file.stat().st_size for file in files if ".so" in file.name), 40 << 20)

    def test_a_root_that_exists_is_not_overwritten(self):
        done = subprocess.run([SCRIPT, self.shared, SERVER], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("exists already", done.stderr)


if __name__ == "__main__":
    if REASON := why_not():
        print(REASON)
        sys.exit(77)
    del sys.argv[1:]
    unittest.main()
