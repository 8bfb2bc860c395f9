"""Runs the tests of the dashboard in headless Chromium, with Playwright and axe-core from PyPI in an environment of
their own. Exit code 77 (skipped) where no Chromium is installed: scripts/install_packages --checkers brings it.

    run.py --daemon PROGRAM --plugin PLUGIN --model FILE.jit [--screenshots docs/images] [-- ARGUMENTS OF PYTEST]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support"))

from environments import Environment  # noqa: E402

PACKAGES = ["playwright==1.65.2", "axe-playwright-python==0.1.8", "pytest", "numpy"]
SKIPPED = 77


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--environments", type=pathlib.Path, help="folder; default: beside the dependencies")
    parser.add_argument("--screenshots", help="writes the pictures of docs/dashboard.md into this folder")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("skipped: no Chromium is installed (scripts/install_packages --checkers)")
        return SKIPPED
    if options.environments is None:
        folder = subprocess.check_output([REPOSITORY / "scripts/fetch_deps", "--print-dir"], text=True)
        options.environments = pathlib.Path(folder.strip()) / "environments"
    python = Environment(options.environments, "dashboard", PACKAGES).python
    given = {name: getattr(options, name) for name in ("daemon", "plugin", "model", "screenshots")}
    given["browser"] = browser
    tests = [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/dashboard", *options.pytest]
    return subprocess.run(tests, cwd=REPOSITORY, env=dict(os.environ, DASHBOARD_TEST=json.dumps(given))).returncode


if __name__ == "__main__":
    sys.exit(main())
