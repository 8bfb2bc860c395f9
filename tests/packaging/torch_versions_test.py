"""One installed daemon beside two versions of libtorch, from Python's packages: plugins and clients that are compiled
against each, one version in a process, and models of AOTInductor. For scripts/test --full: both are
those that tests/python/run.py tests the Python package with."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from daemon import Daemon
from environments import Environment
from run import FRAMEWORKS, FULL

PLACE = None

MAKE_MODEL = """
import sys, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        torch.nn.init.constant_(self.linear.weight, 0.5)
        torch.nn.init.constant_(self.linear.bias, 1.0)

    def forward(self, x, scale):
        y = self.linear(x) * scale
        return {"y": y, "sum": y.sum()}

with torch.no_grad():
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Model(), (torch.ones(2, 4), torch.ones(1)), dynamic_shapes={"x": {0: batch}, "scale": None})
    torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


class Torch:
    """A version of torch for Python."""

    def __init__(self, name, requirements):
        self.python = Environment(PLACE.environments, name, requirements).python
        self.version = run(self.python, "-c", "import torch; print(torch.__version__.split('+')[0])").strip()
        self.torch = pathlib.Path(run(self.python, "-c", "import torch; print(torch.__path__[0])").strip())

    def make_model(self, file):
        if not file.exists():
            run(self.python, "-c", MAKE_MODEL, file)
        return file


class TorchVersions(unittest.TestCase):
    ONES = {"$tensor": {"dtype": "float32", "shape": [2, 4], "data": [[1, 1, 1, 1], [2, 2, 2, 2]]}}
    SCALE = {"$tensor": {"dtype": "float32", "shape": [1], "data": [10]}}

    @classmethod
    def setUpClass(cls):
        PLACE.work.mkdir(parents=True, exist_ok=True)
        cls.installed = PLACE.work / "installed"
        shutil.rmtree(cls.installed, ignore_errors=True)
        run(PLACE.cmake, "--install", PLACE.build, "--prefix", cls.installed)
        cls.pinned = Torch("python-torch", FRAMEWORKS["python-torch"])
        cls.newest = Torch("python-torch-newest", FULL["python-torch-newest"])
        cls.builds = {one: cls.build(one) for one in (cls.pinned, cls.newest)}

    @classmethod
    def build(cls, environment):
        folder = PLACE.work / f"consumer-{environment.version}"
        run(PLACE.cmake, "-S", pathlib.Path(__file__).parent / "consumer", "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_PREFIX_PATH={cls.installed}", f"-DLibTorch_ROOT={environment.torch}")
        run(PLACE.cmake, "--build", folder, "--target", "consumer_plugin", "client")
        return folder

    def start(self, *options):
        daemon = Daemon(self.installed / "bin/shared-tensor-server", *options)
        self.addCleanup(daemon.close)
        return daemon.url

    def rejection(self, *options):
        with self.assertRaises(Daemon.NotStarted) as ended:
            self.start(*options)
        text = str(ended.exception)
        self.assertEqual(text.count("\n"), 1, text)
        return text

    def call(self, url, method, params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(url + "/jsonrpc", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def test_the_versions_differ(self):
        self.assertNotEqual(self.pinned.version, self.newest.version)

    def test_one_daemon_serves_plugins_of_either_version_to_clients_of_both(self):
        for environment, folder in self.builds.items():
            url = self.start("--load", folder / "libconsumer_plugin.so")
            for other in self.builds.values():
                self.assertEqual(run(other / "client", url), "Hello world\n119\n4\n", environment.version)

    def test_two_versions_in_one_process_are_rejected_with_both_paths(self):
        plugins = [folder / "libconsumer_plugin.so" for folder in self.builds.values()]
        second = PLACE.work / "second_plugin.so"
        shutil.copy(plugins[1], second)
        text = self.rejection("--load", plugins[0], "--load", second)
        for environment in self.builds:
            self.assertIn(str(environment.torch.resolve()), text)

    def test_models_want_the_version_of_the_build(self):
        model = self.pinned.make_model(PLACE.work / "model.pt2")
        text = self.rejection("--model", f"m={model}", "--libtorch", self.newest.torch)
        self.assertIn(f"is libtorch {self.newest.version}", text)
        plugin = self.builds[self.newest] / "libconsumer_plugin.so"
        self.assertIn(self.newest.version, self.rejection("--load", plugin, "--model", f"m={model}"))

    def test_a_compiled_model_is_served(self):
        model = self.pinned.make_model(PLACE.work / "model.pt2")
        url = self.start("--libtorch", self.pinned.torch, "--model", f"m={model}", "--model-folder", PLACE.work)
        good = self.call(url, "m.forward", [self.ONES, self.SCALE])
        self.assertEqual(good["result"]["sum"]["$tensor"]["data"], 240)
        self.assertEqual(good["result"]["y"]["$tensor"]["data"], [[30, 30, 30], [50, 50, 50]])
        wide = {"$tensor": {"dtype": "float32", "shape": [1, 5], "data": [[1, 1, 1, 1, 1]]}}
        whole = {"$tensor": {"dtype": "int64", "shape": [1, 4], "data": [[1, 1, 1, 1]]}}
        flat = {"$tensor": {"dtype": "float32", "shape": [4], "data": [1, 1, 1, 1]}}
        for bad in (wide, whole, flat):
            self.assertIn("error", self.call(url, "m.forward", [bad, self.SCALE]))
        self.assertEqual(self.call(url, "m.forward", [self.ONES, self.SCALE])["result"], good["result"])
        rejected = self.call(url, "model.load", {"name": "n", "file": "model.pt2"})
        self.assertIn("--model", json.dumps(rejected["error"]))

    def test_a_package_of_another_version_is_served_rightly_or_rejected_in_one_line(self):
        """A package does not name its version; its code calls functions of C, which newer versions keep."""
        model = self.newest.make_model(PLACE.work / "newest.pt2")
        options = ["--libtorch", self.pinned.torch, "--model", f"m={model}"]
        try:
            url = self.start(*options)
        except Daemon.NotStarted:
            self.assertIn(str(model), self.rejection(*options))
        else:
            self.assertEqual(self.call(url, "m.forward", [self.ONES, self.SCALE])["result"]["sum"]["$tensor"]["data"], 240)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--environments", type=pathlib.Path, required=True)
    parser.add_argument("--cmake", default="cmake")
    PLACE, rest = parser.parse_known_args()
    PLACE.build, PLACE.work, PLACE.environments = PLACE.build.absolute(), PLACE.work.absolute(), PLACE.environments.absolute()
    unittest.main(argv=["torch_versions_test", *rest])
