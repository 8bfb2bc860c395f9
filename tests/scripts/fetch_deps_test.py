import hashlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import unittest
from unittest import mock

from planted import SCRIPTS, PlantedTree


def load():
    loader = importlib.machinery.SourceFileLoader("fetch_deps", str(SCRIPTS / "fetch_deps"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_deps", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    module.QUIET = True
    return module


FETCH = load()
PRESENT = ["site/torch/lib/libtorch_cpu.so", "site/torch/include/ATen/ATen.h", "site/nvidia/cu13/lib/libcudart.so.13",
           "site/nvidia/cu13/lib/libcupti.so.13", "site/nvidia/cu13/lib/libcublas.so.13",
           "site/nvidia/cu13/include/crt/host_defines.h", "site/nvidia/cu13/include/cuda.h", "httplib/httplib.h", "httplib/httplib.cpp", "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "silero_vad/silero_vad.jit", "recordings/Front_Center.wav", "recordings/Noise.wav"]


class FetchDeps(PlantedTree):
    def run_offline(self, *arguments):
        """No tool that could fetch anything is on the path, and no index is reachable."""
        environment = {"PATH": "/nonexistent", "SHARED_TENSOR_DEPS_DIR": str(self.root), "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
                       "PIP_RETRIES": "0"}
        done = subprocess.run([sys.executable, str(SCRIPTS / "fetch_deps"), *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_a_folder_that_has_everything_needs_no_network(self):
        for name in PRESENT:
            self.plant(name, "")
        self.assert_accepted(self.run_offline())

    def test_what_is_missing_or_was_cut_off_is_named_and_a_failure_says_what_to_do(self):
        for missing, partial, arguments, words in (
                ("recordings", None, ["--check"], "missing recordings"),
                ("nothing", ".httplib.partial", ["--check"], "missing httplib"),
                ("silero", None, [], "SHARED_TENSOR_DEPS_DIR")):
            with self.subTest(words):
                self.setUp()  # a fresh folder
                for name in PRESENT:
                    if not name.startswith(missing):
                        self.plant(name, "")
                if partial:
                    self.plant(partial, "")
                self.assert_rejected(self.run_offline(*arguments), words)

    def test_a_file_with_another_hash_and_one_that_is_missing_are_rejected(self):
        for files in ({"a": b"changed"}, {}):
            with self.assertRaises(FETCH.Failure):
                FETCH.check_hashes(files, {"a": hashlib.sha256(b"original").hexdigest()}, "somewhere")

    def test_the_single_header_is_parted_at_its_borders(self):
        border = "// " + "-" * 76 + "\n"
        header, source = FETCH.split_httplib("struct A;\n" + border + "inline void f() {}\n" + border + "struct B;\n")
        self.assertEqual(header, "struct A;\nstruct B;\n")
        self.assertEqual(source, '#include "httplib.h"\nnamespace httplib {\nvoid f() {}\n} // namespace httplib\n')

    def test_only_the_cuda_libraries_of_torch_are_taken(self):
        metadata = ("Requires-Dist: sympy>=1.13.3\nRequires-Dist: cuda-toolkit[cublas,cudart]==13.0.2; platform_system == \"Linux\"\n"
                    "Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == \"Linux\"\nRequires-Dist: triton==3.6.0\n")
        self.assertEqual(FETCH.nvidia_requirements(metadata), ["cuda-toolkit[cublas,cudart]==13.0.2", "nvidia-nccl-cu13==2.28.9"])

    def test_the_folder_can_be_chosen_and_follows_the_cache_of_the_user(self):
        with mock.patch.dict(os.environ, {"SHARED_TENSOR_DEPS_DIR": str(self.root)}):
            self.assertEqual(FETCH.default_folder(), self.root.resolve())
        with mock.patch.dict(os.environ, {"SHARED_TENSOR_DEPS_DIR": "", "XDG_CACHE_HOME": str(self.root)}):
            self.assertEqual(FETCH.default_folder().parent, self.root / "shared_tensor")


if __name__ == "__main__":
    unittest.main()
