import subprocess
import unittest

from planted import PlantedTree


class Coverage(PlantedTree):
    def setUp(self):
        super().setUp()
        self.plant("src/base/a.cpp", "int f(int x) {\n  if (x > 0) {\n    return 1;\n  }\n  return 2;\n}\nint main() { return f(0) - 2; }\n")
        self.build = self.root / "build"
        self.build.mkdir()

    def compile_and_run(self):
        subprocess.run(["g++", "--coverage", "-O0", "-o", "a", "../src/base/a.cpp"], cwd=self.build, check=True)
        subprocess.run(["./a"], cwd=self.build, check=True)

    def report(self, *arguments):
        return self.script("coverage", "--root", self.root, "--report", self.build, *arguments)

    def test_lines_that_no_test_reached_are_counted_and_named(self):
        self.compile_and_run()
        code, text = self.report("--missed")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"base +5 +4 +80\.0%")
        self.assertIn("src/base/a.cpp: 3", text)

    def test_coverage_below_the_mark_fails(self):
        self.compile_and_run()
        self.assert_rejected(self.report("--least", "90"), "80.0 % is below 90 %")

    def test_a_build_without_data_fails(self):
        self.assert_rejected(self.report(), "no coverage data")


if __name__ == "__main__":
    unittest.main()
