"""Builds the wheel, installs it into an environment of its own, and runs the tests of this folder there.

Arguments after -- go to pytest.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["numpy", "ml_dtypes", "pytest", "ruff", "mypy"]


def run(*command: str | os.PathLike[str], **options: object) -> None:
    print("[python]", *command, flush=True)
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--werror", action="store_true", help="build the wheel with warnings as errors")
    parser.add_argument("--with", dest="more", action="append", default=[], help="one more package to install")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()

    environment = dict(os.environ)
    if options.werror:
        environment["CMAKE_ARGS"] = "-DSHARED_TENSOR_WERROR=ON"
    run(REPOSITORY / "scripts/build_wheel", "--python", sys.executable, cwd=REPOSITORY, env=environment)

    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    folder = REPOSITORY / "build/python" / tag / "tests"
    if not (folder / "bin/python").exists():
        run(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", *TOOLS, *options.more)
    wheels = sorted((REPOSITORY / "build/python/dist").glob(f"shared_tensor-*-{tag}-*.whl"))
    wheels += sorted((REPOSITORY / "build/python/dist").glob("shared_tensor-*-cp312-abi3-*.whl"))
    run(*pip, "install", "--force-reinstall", "--no-deps", wheels[0])

    run(python, "-m", "ruff", "check", "python", "tests/python", cwd=REPOSITORY)
    run(python, "-m", "ruff", "format", "--check", "python", "tests/python", cwd=REPOSITORY)
    run(python, "-m", "mypy", cwd=REPOSITORY)
    return subprocess.run(
        [python, "-B", "-m", "pytest", "-q", "tests/python", *options.pytest], cwd=REPOSITORY
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
