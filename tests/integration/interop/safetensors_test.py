#!/usr/bin/env python3
"""safetensors files go between the package `safetensors` and the programs of this build.

    safetensors_test.py --daemon PROGRAM --client PROGRAM

Ends with 77, which the test runner counts as skipped, where this Python has no safetensors or NumPy.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from daemon import Daemon

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)


def tensors():
    """One of each dtype that NumPy has, and odd shapes."""
    kinds = ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8"]
    result = {f"of.{kind}": numpy.arange(6).astype(kind).reshape(2, 3) for kind in kinds}
    result["scalar"] = numpy.array(7, "f4")
    result["empty"] = numpy.zeros((0, 4), "f8")
    result["a name/with \"odd\" letters ä"] = numpy.ones(3, "u1")
    return result


def same(one, other):
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and one[name].shape == other[name].shape and (one[name] == other[name]).all()
        for name in one)


def run(program, url, *words):
    result = subprocess.run([program, *words], env={**os.environ, "SHARED_TENSOR_URL": url}, capture_output=True, text=True)
    assert result.returncode == 0, f"{words}: {result.returncode}: {result.stderr}"
    return result.stdout


def check(client, url, folder):
    theirs, ours = str(folder / "theirs.safetensors"), str(folder / "ours.safetensors")
    for name, given in {"kinds": tensors(), "many": {f"layer.{i}": numpy.full(25, i, "f4") for i in range(5000)}, "none": {}}.items():
        safetensors.numpy.save_file(given, theirs, metadata={"format": "np", "note": "ä \"b\""})
        run(client, url, "put", theirs, "--name", name)
        run(client, url, "get", name, "-o", ours)
        assert same(safetensors.numpy.load_file(ours), given), name
        with safetensors.safe_open(ours, "np") as file:
            assert file.metadata() == {"format": "np", "note": "ä \"b\""}, file.metadata()
    print("safetensors", safetensors.__version__, "and these programs read each other's files")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Daemon(arguments.daemon) as daemon:
        check(arguments.client, daemon.url, pathlib.Path(folder))


if __name__ == "__main__":
    main()
