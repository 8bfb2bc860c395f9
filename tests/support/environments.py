"""Python environments that tests install packages into. They are large, so they are kept beside the dependencies and
shared by all checkouts: a test installs nothing of its own into one, but makes a `layer` on it."""

from __future__ import annotations

import fcntl
import pathlib
import shutil
import subprocess
import sys


def _run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


def _tag(python: str) -> str:
    return _run(python, "-c", "import sys; print('cp%d%d%s' % (*sys.version_info[:2], sys.abiflags))").strip()


def install(python: pathlib.Path, *arguments: object) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--prefer-binary"]
    _run(python, "-m", "pip", "install", *options, *arguments)


class Environment:
    """Packages for one Python, installed once."""

    def __init__(self, kept_in: pathlib.Path, name: str, requirements: list[str], python: str = sys.executable) -> None:
        kept_in.mkdir(parents=True, exist_ok=True)
        self.folder = kept_in / f"{name}-{_tag(python)}"
        self.python = self.folder / "bin/python3"
        complete = self.folder / "complete"
        wanted = "\n".join(requirements)
        with open(kept_in / f".{self.folder.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if complete.exists() and complete.read_text() == wanted:
                return
            print(f"installing {' '.join(requirements)} into {self.folder}", file=sys.stderr, flush=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            _run(python, "-m", "venv", self.folder)
            install(self.python, *requirements)
            complete.write_text(wanted)

    def layer(self, folder: pathlib.Path) -> pathlib.Path:
        """Makes an empty environment that sees the packages of this one. Returns its Python."""
        shutil.rmtree(folder, ignore_errors=True)
        _run(self.python, "-m", "venv", folder)
        packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
        below = _run(self.python, "-c", packages).strip()
        python = folder / "bin/python3"
        (pathlib.Path(_run(python, "-c", packages).strip()) / "layer.pth").write_text(below + "\n")
        return python
