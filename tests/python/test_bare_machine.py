"""The wheel on a machine without a compiler: a folder that becomes the root of a process of its own. It has Python, the
libraries that Python itself needs, and the runtime of C++; nothing else. An unprivileged user installs the wheel there.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import bare_machine
import pytest

NOBODY = 65534
# The parts of Python, in files of their own, that pip needs. Not OpenSSL: the wheel brings it.
EXTENSIONS = ["zlib", "pyexpat"]
RUNTIME = ["libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0"]  # the last: a part of glibc that LMDB names
AS_ROOT = os.getuid() == 0
UNSHARE = ["unshare", "--mount", *([] if AS_ROOT else ["--user", "--map-root-user"])]


def libraries_of(binary: str) -> set[str]:
    shown = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", shown))


def needed() -> set[str]:
    """The files and folders of this machine that the other one has, too."""
    executable = os.path.realpath(sys.executable)
    found = {executable} | libraries_of(executable)
    for name in EXTENSIONS:
        found |= libraries_of(getattr(importlib.import_module(name), "__file__", ""))
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    for library in RUNTIME:
        found |= set(re.findall(rf"{re.escape(library)} .* => (\S*{os.uname().machine}\S*)", known))
    if sys.base_prefix != "/usr":
        return found | {sys.base_prefix}
    wheels = {path for path in ["/usr/share/python-wheels"] if os.path.isdir(path)}  # Debian's pip and setuptools
    return found | {sysconfig.get_path("stdlib")} | wheels


def plant(root: pathlib.Path, path: str) -> str:
    """Makes a place for a file or folder, and returns the command that puts it there."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(path):
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    return f"mount --rbind {path} {place}"


def make_root(root: pathlib.Path, wheel: pathlib.Path) -> str:
    """Fills the folder. Returns the commands that make a root of it."""
    for folder in ("dev/shm", "etc", "home", "tmp", "proc"):
        (root / folder).mkdir(parents=True)
    (root / "etc/passwd").write_text(f"user:x:{NOBODY}:{NOBODY}::/home:/\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copy(wheel, root / "tmp")
    shutil.copy(bare_machine.__file__, root / "tmp")
    for folder in ("home", "tmp", "dev/shm"):
        (root / folder).chmod(0o777)
    given = [*sorted(needed()), "/dev/null", "/dev/urandom", "/proc"]
    return "\n".join(["set -e", *(plant(root, path) for path in given)])


@pytest.fixture
def wheel() -> pathlib.Path:
    if "SHARED_TENSOR_WHEEL" not in os.environ:
        pytest.skip("SHARED_TENSOR_WHEEL names no wheel: tests/python/run.py sets it")
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets this user make no mount namespace")
    return pathlib.Path(os.environ["SHARED_TENSOR_WHEEL"])


def test_the_wheel_installs_and_works_without_a_compiler(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "root"
    commands = make_root(root, wheel)
    python = os.path.realpath(sys.executable)
    user = f"--userspec={NOBODY}:{NOBODY}" if AS_ROOT else ""
    clean = f"env -i HOME=/home PATH={os.path.dirname(python)} LD_LIBRARY_PATH="
    enter = f"{clean} {shutil.which('chroot')} {user} {root} {python} /tmp/bare_machine.py /tmp/{wheel.name} /home"
    done = subprocess.run([*UNSHARE, "sh", "-c", f"{commands}\nexec {enter}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    print(f"installed in {seen['seconds']:.1f} s")
    assert seen["tools"] == []
    assert seen["user"] == (NOBODY if AS_ROOT else 0)
    assert seen["seconds"] < 300
    assert re.match(r"shared-tensor-server \d+\.\d+\.\d+", seen["server"])
    assert "shared-tensor call add 1 2" in seen["help"]
    assert seen["called"] == "3.0 (2, 3) None"  # None: shared memory is usable


def test_a_compiler_there_would_be_seen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bare_machine.tools() == []
    (tmp_path / "cc").touch(mode=0o755)
    assert bare_machine.tools() == ["cc"]
