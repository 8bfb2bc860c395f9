"""Installs a build into a folder of its own, builds the consumer project against it alone, and runs what came out:
the consumer's functions in the consumer's own program, and in the installed daemon, called by the consumer's client."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from daemon import Daemon

PLACE = None


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
        cls.build("consumer", "build")

    @classmethod
    def build(cls, project, folder, *more):
        run(PLACE.cmake, "-G", PLACE.generator, "-S", pathlib.Path(__file__).parent / project, "-B", cls.work / folder,
            "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={PLACE.cxx}", f"-DCMAKE_CXX_COMPILER_LAUNCHER={PLACE.launcher}",
            f"-DCMAKE_PREFIX_PATH={cls.installed}", *more)
        run(PLACE.cmake, "--build", cls.work / folder)

    def start_daemon(self, *options):
        daemon = Daemon(self.installed / "bin" / "shared-tensor-server", "--load", self.work / "build" / "libconsumer_plugin.so",
                        *options)
        self.addCleanup(daemon.close)
        return daemon.url

    def test_the_manual_pages_and_the_completions_are_where_man_and_the_shells_look(self):
        share = self.installed / "share"
        for name in ["shared-tensor", "shared-tensor-server"]:
            self.assertIn(".SH NAME", (share / f"man/man1/{name}.1").read_text())
            self.assertIn("complete -o default", (share / f"bash-completion/completions/{name}").read_text())
            self.assertIn(f"#compdef {name}", (share / f"zsh/site-functions/_{name}").read_text())
            self.assertIn(f"complete -c {name}", (share / f"fish/vendor_completions.d/{name}.fish").read_text())

    def test_a_program_holds_the_functions_that_it_shares(self):
        self.assertEqual(run(self.work / "build" / "program"), "3 functions\nprice: 119.00\n")
        # Nor are functions of a library lost that is linked whole.
        self.assertEqual(run(self.work / "build" / "program_of_library"), "3 functions\nprice: 119.00\n")

    def test_a_program_that_is_linked_to_the_library_for_models_serves_them(self):
        answer = run(self.work / "build" / "models", f"vad={PLACE.model}")
        self.assertRegex(answer, r"^[1-9]\d* functions of a model\n$")

    def test_a_program_without_that_library_says_what_to_do(self):
        program = subprocess.run([self.work / "build" / "no_models", f"vad={PLACE.model}"], capture_output=True, text=True)
        self.assertEqual(program.returncode, 1)
        self.assertIn("link the program to shared_tensor::models", program.stderr)

    def test_the_installed_daemon_serves_a_model_beside_a_plugin_of_the_same_libtorch(self):
        url = self.start_daemon("--libtorch", PLACE.torch, "--model", f"vad={PLACE.model}")
        listed = run(self.installed / "bin" / "shared-tensor", "--url", url, "functions")
        self.assertIn("vad.forward", listed)
        self.assertIn("shop.twice", listed)

    def test_the_installed_daemon_holds_no_path_of_the_build(self):
        for file in (self.installed / "bin" / "shared-tensor-server", next(self.installed.rglob("libshared_tensor_torch.so"))):
            self.assertNotIn(str(PLACE.build).encode(), file.read_bytes())
            self.assertNotIn(str(PLACE.torch).encode(), file.read_bytes())

    def test_the_installed_daemon_serves_a_plugin_of_the_consumer_to_its_client(self):
        url = self.start_daemon()
        self.assertEqual(run(self.work / "build" / "client", url), "Hello world\n119\n4\n")

    def test_a_test_program_of_the_consumer_has_simulated_devices_and_so_has_the_daemon(self):
        url = self.start_daemon("--load", next(self.installed.rglob("libshared_tensor_simulated.so")))
        self.assertEqual(run(self.work / "build" / "simulated", url), "on the device\n")

    def test_a_client_is_built_without_libtorch(self):
        self.build("client_only", "client_only", "-DCMAKE_DISABLE_FIND_PACKAGE_LibTorch=ON")
        program = self.work / "client_only" / "client_only"
        self.assertNotIn("torch", run("ldd", program))
        self.assertEqual(run(program, self.start_daemon()), "6\n")

    def test_a_component_that_does_not_exist_is_an_error(self):
        project = self.work / "no_component"
        project.mkdir(exist_ok=True)
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\n"
                                                "find_package(shared_tensor 0.2 REQUIRED COMPONENTS rust)\n")
        command = [PLACE.cmake, "-S", project, "-B", project / "build", f"-DCMAKE_CXX_COMPILER={PLACE.cxx}",
                   f"-DCMAKE_PREFIX_PATH={self.installed}"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        words = " ".join(done.stderr.split())
        self.assertIn("There is no component rust: the components are client, server and torch", words)

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_programs_and_plugins_are_built_without_cmake_and_the_package_may_be_moved(self):
        with tempfile.TemporaryDirectory() as folder:
            moved, here = pathlib.Path(folder) / "moved", pathlib.Path(__file__).parent
            shutil.copytree(self.installed, moved)
            search = f"PKG_CONFIG_PATH={next(moved.rglob('pkgconfig'))}"

            def flags(package, *wanted):
                return run("env", search, "pkg-config", *wanted, package).split()

            version = run(moved / "bin" / "shared-tensor", "--version").split()[-1]
            self.assertEqual(flags("shared_tensor", "--modversion"), [version])
            program, plugin = pathlib.Path(folder) / "program", pathlib.Path(folder) / "libplain.so"
            of_program = flags("shared_tensor", "--cflags", "--libs")
            of_plugin = flags("shared_tensor_plugin", "--cflags", "--libs")
            run(PLACE.cxx, here / "client_only" / "client_only.cpp", *of_program, "-o", program)
            run(PLACE.cxx, here / "plain_plugin.cpp", *of_plugin, "-o", plugin)
            self.assertNotIn("prometheus", run("ldd", program))  # it has no server
            daemon = Daemon(moved / "bin" / "shared-tensor-server", "--load", plugin)
            self.addCleanup(daemon.close)
            self.assertEqual(run(program, daemon.url), "6\n")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_plugin_with_tensors_of_libtorch_is_built_without_cmake(self):
        """Of two files: each compiles the functions of torch.hpp, and the linker keeps one of each."""
        search = f"PKG_CONFIG_PATH={next(self.installed.rglob('pkgconfig'))}"
        flags = run("env", search, "pkg-config", "--cflags", "--libs", "shared_tensor_plugin").split()
        torch = [f"-I{PLACE.torch}/include", f"-I{PLACE.torch}/include/torch/csrc/api/include", f"-L{PLACE.torch}/lib",
                 "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{PLACE.torch}/lib"]
        functions = pathlib.Path(__file__).parent / "consumer" / "functions.cpp"
        more, plugin = self.work / "more.cpp", self.work / "libtwo_files.so"
        more.write_text(functions.read_text().replace("namespace shop", "namespace more"))
        run(PLACE.cxx, functions, more, *flags, *torch, "-o", plugin)
        daemon = Daemon(self.installed / "bin" / "shared-tensor-server", "--load", plugin)
        self.addCleanup(daemon.close)
        self.assertEqual(run(self.work / "build" / "client", daemon.url), "Hello world\n119\n4\n")

    def test_a_plugin_exports_its_entry_point_alone(self):
        symbols = run("nm", "--dynamic", "--defined-only", self.work / "build" / "libconsumer_plugin.so").splitlines()
        self.assertEqual([line for line in symbols if " T " in line or " D " in line], [])
        self.assertTrue([line for line in symbols if line.endswith(" W shared_tensor_plugin_v1")], symbols)

    def test_what_is_installed_is_linked_to_no_libtorch_and_finds_all_else(self):
        for program in ("shared-tensor-server", "shared-tensor"):
            needed = run("ldd", self.installed / "bin" / program)
            for word in ("libtorch", "libc10", "cuda", "not found"):
                self.assertNotIn(word, needed)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_what_is_installed_runs_for_every_user(self):
        """A user who can read nothing of the one who built it."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            prefix = pathlib.Path(folder) / "prefix"
            shutil.copytree(self.installed, prefix)
            home = pathlib.Path(folder) / "home"
            home.mkdir()
            os.chown(home, 65534, 65534)
            as_user = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": {"HOME": str(home), "PATH": "/usr/bin:/bin"}}
            version = subprocess.run([prefix / "bin" / "shared-tensor", "--version"], capture_output=True, text=True, **as_user)
            self.assertEqual((version.returncode, version.stderr), (0, ""))
            daemon = Daemon(prefix / "bin" / "shared-tensor-server", **as_user)
            self.addCleanup(daemon.close)
            answer = subprocess.run([prefix / "bin" / "shared-tensor", "--url", daemon.url, "info"], capture_output=True,
                                    text=True, **as_user)
            self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_program_may_use_another_version_of_spdlog_or_fmt(self):
        symbols = run("nm", "--demangle", next(self.installed.rglob("libshared_tensor.a")))
        self.assertIn(" shared_tensor_spdlog::", symbols)
        self.assertEqual([line for line in symbols.splitlines() if " spdlog::" in line or " fmt::" in line], [])

    def test_nothing_but_headers_of_the_project_is_installed(self):
        installed = {path.name for path in (self.installed / "include").iterdir()}
        self.assertEqual(installed, {"shared_tensor"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("build", "work", "torch", "model"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("cmake", "generator", "cxx", "launcher"):
        parser.add_argument(f"--{name}", default="")
    PLACE = parser.parse_args()
    unittest.main(argv=["consumer_test"])
