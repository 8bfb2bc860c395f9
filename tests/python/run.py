"""Builds the wheel of the Python package, installs it into environments of their own and runs the tests of this folder
there: beside NumPy alone, and beside torch and JAX. With --full also beside the oldest torch that installs, beside the
newest, and for each other Python that is found. Arguments after -- go to pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support"))

from environments import Environment, install  # noqa: E402

TORCH = json.loads((REPOSITORY / "cmake/dependencies.json").read_text())["torch"]["version"]
TEST = ["pytest", "ml_dtypes"]
CHECK = ["ruff", "mypy"]
CHECKED = [
    "python",
    "tests/python",
    "tests/dashboard",
    "examples",
    "benchmarks/batching_bench.py",
    "benchmarks/call_cost.py",
    "benchmarks/checkpoint_bench.py",
    "benchmarks/compile_time.py",
    "benchmarks/python_bench.py",
    "benchmarks/python_bench_peers.py",
    "benchmarks/ray_bench.py",
    "scripts/docs",
    "docs/site",
]
EXAMPLES = ["fastapi", "uvicorn-worker", "gunicorn", "nbconvert", "ipykernel", "wordllama"]
FRAMEWORKS = {
    "python-numpy": ["numpy", "opentelemetry-sdk", "opentelemetry-proto", *TEST, *CHECK],
    "python-torch": [f"torch=={TORCH}", "jax", "numpy", "ray[default]", *TEST, *EXAMPLES],
}
FULL = {
    "python-torch-oldest": ["torch<2", "numpy<2", *TEST],  # 1.13, which knows no NumPy 2
    "python-torch-newest": ["torch", "numpy", *TEST],
}
# What vLLM's weight transfer imports. All of vLLM needs another torch, and a GPU.
VLLM = [
    "vllm==0.33.0",
    "apache-tvm-ffi",
    "cachetools",
    "cbor2",
    "cloudpickle",
    "einops",
    "jiter",
    "llguidance",
    "msgspec",
    "openai",
    "openai-harmony",
    "partial-json-parser",
    "pillow",
    "py-cpuinfo",
    "pybase64",
    "regex",
    "rich",
    "shellingham",
    "sniffio",
    "transformers",
    "typer",
    "uvloop",
    "xgrammar",
]
OTHER_PYTHONS = ["python3.10", "python3.11", "python3.12", "python3.13", "python3.13t", "python3.14", "python3.15"]


def run(*command: str | os.PathLike[str], **options: object) -> None:
    print("[python]", *command, flush=True)
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


def version_of(python: str) -> str:
    text = "import sys; print('%d.%d%s' % (*sys.version_info[:2], sys.abiflags))"  # 3.13t: without a GIL
    done = subprocess.run([python, "-c", text], capture_output=True, text=True)
    return done.stdout.strip()


def other_pythons() -> dict[str, str]:
    """Version and path of each Python beside this one: on PATH, or kept by pyenv."""
    paths = [path for name in OTHER_PYTHONS if (path := shutil.which(name))]
    paths += map(str, sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    found = {version_of(path): path for path in paths}
    return {version: path for version, path in found.items() if f"python{version}" in OTHER_PYTHONS}


def build(python: str, werror: bool) -> pathlib.Path:
    environment = dict(os.environ, CMAKE_ARGS="-DSHARED_TENSOR_WERROR=ON" if werror else "")
    run(REPOSITORY / "scripts/build_wheel", "--python", python, cwd=REPOSITORY, env=environment)
    return built(python)


def built(python: str) -> pathlib.Path:
    """The wheel for this Python; one for Python 3.12 serves all that are newer."""
    tag = "cp" + version_of(python).replace(".", "")
    folder = REPOSITORY / "build/python/dist"
    return [*folder.glob(f"shared_tensor-*-{tag}-*.whl"), *folder.glob("shared_tensor-*-cp312-abi3-*.whl")][0]


def test(environment: Environment, wheel: pathlib.Path, check: bool, arguments: list[str], *more: str) -> bool:
    """more: packages that are installed without what they depend on."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment.layer(pathlib.Path(folder) / "environment")
        install(python, "--no-deps", wheel, *more)
        if check:
            run(python, "-m", "ruff", "check", *CHECKED, cwd=REPOSITORY)
            run(python, "-m", "ruff", "format", "--check", *CHECKED, cwd=REPOSITORY)
            run(python, "-m", "mypy", "--python-executable", python, cwd=REPOSITORY)
        print("[python] pytest in", environment.folder.name, flush=True)
        files = "tests/python/test_vllm.py" if more else "tests/python"
        tests = [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", files, *arguments]
        with_wheel = dict(os.environ, SHARED_TENSOR_WHEEL=str(wheel))
        return subprocess.run(tests, cwd=REPOSITORY, env=with_wheel).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--werror", action="store_true", help="build the wheel with warnings as errors")
    parser.add_argument("--full", action="store_true", help="also other versions of torch and of Python")
    parser.add_argument("--build", action="store_true", help="build the wheel, and test nothing")
    parser.add_argument("--built", action="store_true", help="test the wheel that was built last")
    parser.add_argument("--only", help="one environment: " + ", ".join([*FRAMEWORKS, *FULL, "python-vllm"]))
    parser.add_argument("--environments", type=pathlib.Path, help="folder; default: beside the dependencies")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    if options.environments is None:
        folder = subprocess.check_output([REPOSITORY / "scripts/fetch_deps", "--print-dir"], text=True)
        options.environments = pathlib.Path(folder.strip()) / "environments"

    wheel = built(sys.executable) if options.built else build(sys.executable, options.werror)
    if options.build:
        return 0
    wanted = {**FRAMEWORKS, **(FULL if options.full or options.only else {})}
    failed = []
    for name, requirements in wanted.items():
        if options.only in (None, name):
            environment = Environment(options.environments, name, requirements)
            if not test(environment, wheel, "ruff" in requirements, options.pytest):
                failed.append(environment.folder.name)
    if options.full or options.only == "python-vllm":
        environment = Environment(options.environments, "python-torch", FRAMEWORKS["python-torch"])
        if not test(environment, wheel, False, options.pytest, *VLLM):
            failed.append("python-vllm")
    if options.full:
        for version, python in other_pythons().items():
            if version != version_of(sys.executable):
                environment = Environment(options.environments, "python-numpy", FRAMEWORKS["python-numpy"], python)
                if not test(environment, build(python, options.werror), False, options.pytest):
                    failed.append(environment.folder.name)
    print("[python] failed in:" if failed else "[python] all passed", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
