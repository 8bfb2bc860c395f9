"""A small repository in a temporary folder, to plant violations in, and the scripts run on it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"


class PlantedTree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def plant(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def module(self, name, arrows=""):
        self.plant(f"src/{name}/CMakeLists.txt", f"shared_tensor_add_module({name}\n  SOURCES a.cpp\n  ARROWS {arrows}\n  LINK x::y)\n")

    def script(self, name, *arguments):
        command = [sys.executable] if "python3" in (SCRIPTS / name).read_text().splitlines()[0] else ["bash"]
        done = subprocess.run([*command, str(SCRIPTS / name), *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def assert_rejected(self, outcome, *words):
        code, text = outcome
        self.assertEqual(code, 1, text)
        for word in words:
            self.assertIn(word, text)

    def assert_accepted(self, outcome):
        self.assertEqual(outcome[0], 0, outcome[1])
