import pathlib
import shutil
import unittest

from planted import SCRIPTS, PlantedTree


class Format(PlantedTree):
    def setUp(self):
        super().setUp()
        if self.script("format", "--check", SCRIPTS.parent / "nothing.cpp")[0] == 2:
            self.skipTest("clang-format 14 is not installed: scripts/install_packages --checkers")
        shutil.copy(pathlib.Path(SCRIPTS).parent / ".clang-format", self.root)

    def test_code_in_another_format_fails_is_named_and_is_repaired(self):
        file = self.plant("a.cpp", "int add (int a,int b)\n{ return a+b ; }\n")
        self.assert_rejected(self.script("format", "--check", file), "a.cpp")
        self.assert_accepted(self.script("format", file))
        self.assertEqual(file.read_text(), "int add(int a, int b) { return a + b; }\n")
        self.assert_accepted(self.script("format", "--check", file))


if __name__ == "__main__":
    unittest.main()
