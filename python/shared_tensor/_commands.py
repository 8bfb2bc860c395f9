"""The commands shared-tensor and shared-tensor-server: programs in C++ that the package carries."""

from __future__ import annotations

import os
import pathlib
import sys

_PROGRAMS = pathlib.Path(__file__).resolve().parent / "bin"


def _run(name: str) -> None:
    program = os.fspath(_PROGRAMS / name)
    os.execv(program, [program, *sys.argv[1:]])


def client() -> None:
    _run("shared-tensor")


def server() -> None:
    _run("shared-tensor-server")


def keeper() -> None:
    _run("shared-tensor-keeper")
