"""Installs a build into a folder of its own, builds the consumer project against it alone, and runs what came out:
the consumer's functions in the consumer's own program, and in the installed daemon, called by the consumer's client."""

import argparse
import pathlib
import shutil
import subprocess
import time
import unittest

PLACE = None
START_LIMIT_S = 60


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = PLACE.work
        cls.installed = cls.work / "installed"
        shutil.rmtree(cls.work, ignore_errors=True)
        run(PLACE.cmake, "--install", PLACE.build, "--prefix", cls.installed)
        run(PLACE.cmake, "-G", PLACE.generator, "-S", pathlib.Path(__file__).parent / "consumer", "-B", cls.work / "build",
            "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={PLACE.cxx}", f"-DCMAKE_CXX_COMPILER_LAUNCHER={PLACE.launcher}",
            f"-DCMAKE_PREFIX_PATH={cls.installed}")
        run(PLACE.cmake, "--build", cls.work / "build")

    def start_daemon(self):
        ready = self.work / "ready"
        ready.unlink(missing_ok=True)
        daemon = subprocess.Popen([self.installed / "bin" / "shared-tensor-server", "--host", "127.0.0.1", "--port", "0",
                                   "--ready-file", ready, "--load", self.work / "build" / "libconsumer_plugin.so"])
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists() or not ready.read_text().strip():
            self.assertIsNone(daemon.poll(), "the daemon ended before it was ready")
            self.assertLess(time.monotonic(), deadline, "the daemon was not ready in time")
            time.sleep(0.02)
        return ready.read_text().strip()

    def test_a_program_holds_the_functions_that_it_shares(self):
        self.assertEqual(run(self.work / "build" / "program"), "3 functions\nprice: 119.00\n")

    def test_functions_of_a_library_that_is_linked_whole_are_not_lost(self):
        self.assertEqual(run(self.work / "build" / "program_of_library"), "3 functions\nprice: 119.00\n")

    def test_the_installed_daemon_serves_a_plugin_of_the_consumer_to_its_client(self):
        url = self.start_daemon()
        self.assertEqual(run(self.work / "build" / "client", url), "Hello world\n119\n4\n")

    def test_a_program_may_use_another_version_of_spdlog_or_fmt(self):
        symbols = run("nm", "--demangle", next(self.installed.rglob("libshared_tensor.a")))
        self.assertIn(" shared_tensor_spdlog::", symbols)
        self.assertEqual([line for line in symbols.splitlines() if " spdlog::" in line or " fmt::" in line], [])

    def test_nothing_but_headers_of_the_project_is_installed(self):
        installed = {path.name for path in (self.installed / "include").iterdir()}
        self.assertEqual(installed, {"shared_tensor"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("build", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("cmake", "generator", "cxx", "launcher"):
        parser.add_argument(f"--{name}", default="")
    PLACE = parser.parse_args()
    unittest.main(argv=["consumer_test"])
