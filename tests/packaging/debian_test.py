"""Installs the packages of scripts/package with apt in a Debian 12 that debootstrap makes, and uses them there as a
user without rights. Needs root, debootstrap and a mirror. Takes minutes, so only scripts/test --full runs it."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

PLACE = None
PATIENCE = 60  # seconds
HERE = pathlib.Path(__file__).resolve().parent
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]


def why_not():
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    return None


def run(*command, **more):
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout[-3000:]}")
    return done.stdout


def mirrors():
    """The sources of this machine's apt for Debian 12: address, suite."""
    listed = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT)", "Created-By: Packages"
    )
    found = {tuple(line.split()) for line in listed.splitlines()}
    return sorted(
        {
            (uri, codename)
            for uri, _, codename, component in found
            if component == "main" and codename in ("bookworm", "bookworm-updates", "bookworm-security")
        }
    )


class Debian(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = PLACE.work / "debian"
        shutil.rmtree(cls.root, ignore_errors=True)
        base = PLACE.work / "base.tar.gz"  # kept: a second run needs no debootstrap
        if base.exists():
            cls.root.mkdir(parents=True)
            run("tar", "-xzf", base, "-C", cls.root)
        else:
            PLACE.work.mkdir(parents=True, exist_ok=True)
            uri = next(uri for uri, suite in mirrors() if suite == "bookworm")
            run("debootstrap", "--variant=minbase", "bookworm", cls.root, uri)
            run("tar", "-czf", base, "-C", cls.root, ".")
        sources = "".join(f"deb {uri} {suite} main\n" for uri, suite in mirrors())
        (cls.root / "etc/apt/sources.list").write_text(sources)
        for file in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(file, cls.root / file[1:])
        run("mount", "-t", "proc", "proc", cls.root / "proc")
        cls.addClassCleanup(run, "umount", cls.root / "proc")
        (cls.root / "packages").mkdir()
        for package in PLACE.packages.glob("*.deb"):
            shutil.copy(package, cls.root / "packages")
        cls.names = sorted(package.name.split("_")[0] for package in PLACE.packages.glob("*.deb"))
        cls.inside("apt-get", "update", "-q")
        cls.install("/packages/*.deb")
        cls.install("g++ pkg-config python3-numpy")
        cls.daemon = cls.build_and_serve()
        cls.addClassCleanup(cls.stop, cls.daemon)

    @classmethod
    def inside(cls, *command, **more):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return run("chroot", cls.root, *command, env=environment, **more)

    @classmethod
    def install(cls, what):
        cls.inside("sh", "-c", f"apt-get install -y -q --no-install-recommends {what}")

    @classmethod
    def as_nobody(cls, *command):
        return cls.inside(*NOBODY, "env", "HOME=/nonexistent", *command)

    @classmethod
    def build_and_serve(cls):
        for name in ("client_only/client_only.cpp", "plain_plugin.cpp"):
            shutil.copy(HERE / name, cls.root / "tmp")
        cls.inside(
            "sh",
            "-c",
            "cd /tmp && c++ client_only.cpp $(pkg-config --cflags --libs shared_tensor) -o client && "
            "c++ plain_plugin.cpp $(pkg-config --cflags --libs shared_tensor_plugin) -o plugin.so",
        )
        cls.log = (PLACE.work / "daemon.log").open("w+")
        cls.addClassCleanup(cls.log.close)
        daemon = subprocess.Popen(
            [
                "chroot",
                cls.root,
                *NOBODY,
                "shared-tensor-server",
                "--host",
                "",
                "--unix-socket",
                "/tmp/server.sock",
                "--load",
                "/tmp/plugin.so",
                "--ready-file",
                "/tmp/ready",
            ],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stderr=cls.log,
        )
        end = time.monotonic() + PATIENCE
        while not (cls.root / "tmp/ready").exists():
            if daemon.poll() is not None or time.monotonic() > end:
                cls.stop(daemon)
                raise AssertionError("the daemon did not start: " + (PLACE.work / "daemon.log").read_text())
            time.sleep(0.05)
        return daemon

    @staticmethod
    def stop(daemon):
        daemon.terminate()
        daemon.wait(PATIENCE)

    def test_apt_installs_all_packages_and_nothing_of_torch(self):
        listed = self.inside("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n").splitlines()
        for name in self.names:
            self.assertIn(f"{name} installed", listed)
        self.assertEqual([line for line in listed if "torch" in line], [])
        self.inside("apt-get", "check")

    def test_there_is_a_user_and_an_options_file_that_is_kept(self):
        self.assertIn("/nonexistent", self.inside("getent", "passwd", "shared-tensor"))
        self.assertIn(
            "/etc/shared_tensor.toml", self.inside("dpkg-query", "-W", "-f", "${Conffiles}", "shared-tensor-server")
        )
        file = self.root / "etc/shared_tensor.toml"
        before = file.read_text()
        self.addCleanup(file.write_text, before)
        file.write_text(before + "max-tasks = 77\n")
        self.inside("sh", "-c", "dpkg --force-confold -i /packages/shared-tensor-server_*.deb")
        self.assertIn("max-tasks = 77", file.read_text())
        printed = self.as_nobody("shared-tensor-server", "--config", "/etc/shared_tensor.toml", "--print-config")
        self.assertIn("max-tasks = 77", printed)

    def test_the_units_are_where_systemd_looks(self):
        units = {unit.name for unit in (self.root / "usr/lib/systemd/system").glob("shared-tensor-server*")}
        units |= {unit.name for unit in (self.root / "lib/systemd/system").glob("shared-tensor-server*")}
        self.assertEqual(
            units, {"shared-tensor-server.service", "shared-tensor-server.socket", "shared-tensor-server@.service"}
        )

    def test_a_user_without_rights_calls_the_daemon(self):
        url = "unix:/tmp/server.sock"
        self.assertIn("shop.twice", self.as_nobody("shared-tensor", "--url", url, "functions"))
        self.assertRegex(self.as_nobody("shared-tensor", "--url", url, "doctor"), r"shm +yes")
        self.assertEqual(self.as_nobody("/tmp/client", url), "6\n")

    def test_python_calls_the_daemon_and_serves(self):
        if "python3-shared-tensor" not in self.names:
            self.skipTest("the package for Python was not made")
        (self.root / "tmp/call.py").write_text(
            "import numpy, shared_tensor\n"
            "client = shared_tensor.Client('unix:/tmp/server.sock', framework='numpy')\n"
            "print(shared_tensor.__version__, client.call('shop.twice', numpy.ones(3, numpy.float32)).sum())\n"
        )
        version = self.as_nobody("shared-tensor", "--version").split()[-1]
        self.assertEqual(self.as_nobody("python3", "-B", "/tmp/call.py"), f"{version} 6.0\n")

    def test_what_is_removed_leaves_only_what_the_operator_changed(self):
        self.inside("apt-get", "remove", "-y", "-q", "shared-tensor-models", "shared-tensor-server")
        self.assertFalse((self.root / "usr/bin/shared-tensor-server").exists())
        self.assertTrue((self.root / "etc/shared_tensor.toml").exists())
        self.inside("apt-get", "purge", "-y", "-q", "shared-tensor-server")
        self.assertFalse((self.root / "etc/shared_tensor.toml").exists())
        self.install("/packages/*.deb")


if __name__ == "__main__":
    if REASON := why_not():
        print(REASON)
        sys.exit(77)
    parser = argparse.ArgumentParser()
    for argument in ("packages", "work"):
        parser.add_argument(f"--{argument}", type=pathlib.Path, required=True)
    PLACE = parser.parse_args()
    unittest.main(argv=["debian_test"])
