#!/usr/bin/env python3
"""How long users' code takes to compile: CPU seconds of the compiler, the best of several runs.

    benchmarks/compile_time.py build/release

A plugin of ten functions of at::Tensor, and what parts of it take. The flags are those of the build's readme_functions.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shlex
import subprocess
import tempfile

FUNCTIONS = """
at::Tensor same(const at::Tensor& a) { return a; }
at::Tensor first(const at::Tensor& a, const at::Tensor&) { return a; }
at::Tensor by_value(at::Tensor a, int) { return a; }
at::Tensor scaled(const at::Tensor& a, double factor) { return factor > 0 ? a : at::Tensor(); }
at::Tensor flagged(const at::Tensor& a, bool) { return a; }
at::Tensor named(const at::Tensor& a, const std::string&) { return a; }
std::vector<at::Tensor> listed(const at::Tensor& a) { return {a}; }
at::Tensor of_list(const std::vector<at::Tensor>& list) { return list.at(0); }
std::tuple<at::Tensor, at::Tensor> both(const at::Tensor& a) { return {a, a}; }
std::optional<at::Tensor> perhaps(const std::optional<at::Tensor>& a) { return a; }
"""
NAMES = ["same", "first", "by_value", "scaled", "flagged", "named", "listed", "of_list", "both", "perhaps"]


def source(shared: int) -> str:
    includes = "#include <ATen/core/Tensor.h>\n#include <shared_tensor/share.hpp>\n#include <shared_tensor/torch.hpp>\n"
    return includes + FUNCTIONS + "".join(f"SHARE({name});\n" for name in NAMES[:shared])


ROWS = [
    ("<ATen/core/Tensor.h> alone", "#include <ATen/core/Tensor.h>\n", True),
    ("ten functions, without SHARE", source(0), True),
    ("one SHARE", source(1), True),
    ("ten SHAREs", source(10), True),
    ("ten SHAREs, without CMake's shared_tensor::torch", source(10), False),
]


def flags(build: pathlib.Path) -> list[str]:
    commands = json.loads((build / "compile_commands.json").read_text())
    command = next(one["command"] for one in commands if "readme_functions.dir" in one["command"])
    words = iter(shlex.split(command))
    kept = ["-fPIC"]
    for word in words:
        if word == "-isystem":
            kept += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=")):
            kept.append(word)
    return kept


def cpu_seconds(compiler: str, arguments: list[str], text: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "plugin.cpp")
        file.write_text(text)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([compiler, *arguments, "-O2", "-c", file, "-o", file.with_suffix(".o")], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder with examples")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    compiler = os.environ.get("CXX", "g++")
    compiled = flags(options.build)
    without_cmake = [flag for flag in compiled if flag != "-DSHARED_TENSOR_TORCH_COMPILED"]
    for name, text, by_cmake in ROWS:
        took = [cpu_seconds(compiler, compiled if by_cmake else without_cmake, text) for _ in range(options.rounds)]
        print(f"{name:50} {min(took):5.2f} s", flush=True)


if __name__ == "__main__":
    main()
