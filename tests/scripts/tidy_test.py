import json
import shutil
import unittest

from planted import SCRIPTS, PlantedTree


class Tidy(PlantedTree):
    def setUp(self):
        super().setUp()
        if not shutil.which("clang-tidy"):
            self.skipTest("clang-tidy is not installed: scripts/install_packages --checkers")
        shutil.copy(SCRIPTS.parent / ".clang-tidy", self.root)

    def tidy(self, text):
        file = self.plant("src/base/a.cpp", text)
        command = {"directory": str(self.root), "file": str(file), "command": f"g++ -std=c++20 -c {file}"}
        self.plant("build/compile_commands.json", json.dumps([command]))
        return self.script("tidy", "--build", self.root / "build", file)

    def test_sound_code_passes(self):
        self.assert_accepted(self.tidy("int add(int a, int b) { return a + b; }\n"))

    def test_a_bug_fails(self):
        self.assert_rejected(self.tidy("#include <string>\nint f() { std::string a = \"x\"; std::string b = std::move(a); return a.size() + b.size(); }\n"),
                            "use-after-move")

    def test_a_name_that_is_not_the_house_style_fails(self):
        self.assert_rejected(self.tidy("int addNumbers(int a, int b) { return a + b; }\n"), "identifier-naming")


if __name__ == "__main__":
    unittest.main()
