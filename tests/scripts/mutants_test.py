import json
import subprocess
import unittest

from planted import PlantedTree

# A project that needs no compiler: its tests look for words in the source.
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(tiny NONE)
enable_testing()
add_custom_target(unit_tests COMMAND grep -q compiles ${CMAKE_SOURCE_DIR}/src/net/a.cpp)
foreach(word IN ITEMS bound lock)
  add_test(NAME ${word}_holds COMMAND grep -q ${word} ${CMAKE_SOURCE_DIR}/src/net/a.cpp)
endforeach()
add_test(NAME both_hold COMMAND grep -q bound.*lock ${CMAKE_SOURCE_DIR}/src/net/a.cpp)
add_test(NAME always_fails COMMAND false)
set_tests_properties(bound_holds lock_holds both_hold always_fails PROPERTIES LABELS unit)
"""
LIST = """# Of the network.

mutant no_bound
file src/net/a.cpp
- bound
+ border

mutant other_order
file src/net/a.cpp
- bound lock
+ lock bound

mutant harmless
file src/net/a.cpp
- comment
+ remark

mutant broken
file src/net/a.cpp
- compiles
"""


class Mutants(PlantedTree):
    def setUp(self):
        super().setUp()
        self.plant("CMakeLists.txt", CMAKE)
        self.plant(".gitignore", "/build/\n")
        self.source = self.plant("src/net/a.cpp", "compiles\nbound lock\ncomment\n")
        self.plant("tests/mutants/net.txt", LIST)

    def git(self, *arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=self.root, check=True, capture_output=True)

    def commit(self):
        self.git("init")
        self.git("add", ".")
        self.git("commit", "-m", "all")

    def mutants(self, *arguments):
        return self.script("mutants", "--root", self.root, *arguments)

    def results(self):
        lines = (self.root / "build" / "mutants" / "results.jsonl").read_text().splitlines()
        return {record["name"]: (record["result"], record["failed"]) for record in map(json.loads, lines)}

    def test_a_list_that_fits_passes_the_check(self):
        self.assert_accepted(self.mutants("--check"))

    def test_what_does_not_fit_fails_the_check_by_name(self):
        for path, text, *words in (
                ("src/net/a.cpp", "compiles\nlock\ncomment\n", "no_bound", "0 times"),
                ("src/net/a.cpp", "compiles\nbound lock\ncomment comment\n", "harmless", "2 times"),
                ("tests/mutants/local.txt", "mutant broken\nfile src/net/a.cpp\n- bound\n", "broken: two mutants"),
                ("tests/mutants/net.txt", "mutant same\nfile src/net/a.cpp\n- bound\n+ bound\n",
                 "same: its new text is its old text"),
                ("tests/mutants/net.txt", "mutant one\nfiles src/net/a.cpp\n", "net.txt:2")):
            with self.subTest(words):
                self.setUp()  # a fresh tree
                self.plant(path, text)
                self.assert_rejected(self.mutants("--check"), *words)

    def test_a_name_that_is_in_no_list_is_rejected(self):
        self.assert_rejected(self.mutants("--only", "nothing", "--check"), "no such mutant")

    def test_each_mutant_has_its_outcome_and_the_summary_names_tests_that_alone_kill_one(self):
        self.commit()
        before = self.source.read_text()
        code, text = self.mutants()
        self.assertEqual(code, 0, text)
        self.assertEqual(self.results(), {
            "(no defect)": ("tested", ["always_fails"]), "no_bound": ("killed", ["both_hold", "bound_holds"]),
            "other_order": ("killed", ["both_hold"]), "harmless": ("survived", []), "broken": ("does-not-build", [])})
        self.assertRegex(text, r"net +4 +2 +1 +1")
        self.assertIn("survived: harmless in src/net/a.cpp", text)
        self.assertIn('only "both_hold" kills other_order', text)
        self.assertNotIn("no_bound\n", text)
        self.assertEqual(self.source.read_text(), before)  # your files are not touched, and the copy is whole again
        self.assertEqual((self.root / "build" / "mutants" / "tree" / "src" / "net" / "a.cpp").read_text(), before)

    def test_what_an_interrupted_run_has_left_is_taken_back(self):
        self.commit()
        self.mutants("--only", "harmless")
        (self.root / "build" / "mutants" / "tree" / "src" / "net" / "a.cpp").write_text("compiles\nlock\ncomment\n")
        self.assert_accepted(self.mutants("--only", "other_order"))
        self.assertEqual(self.results()["other_order"], ("killed", ["both_hold"]))

    def test_a_second_run_goes_on_where_the_first_stopped_and_a_new_commit_begins_anew(self):
        self.commit()
        self.mutants("--only", "no_bound")
        code, text = self.mutants()
        self.assertEqual(code, 0, text)
        self.assertNotIn("[mutants] no_bound:", text)
        self.assertIn("[mutants] harmless:", text)
        self.git("commit", "--allow-empty", "-m", "more")
        self.assertIn("[mutants] no_bound:", self.mutants("--only", "no_bound")[1])

    def test_files_that_are_not_committed_are_named(self):
        self.commit()
        self.plant("tests/mutants/local.txt", "mutant new\nfile src/net/b.cpp\n- new\n")
        self.plant("src/net/b.cpp", "new\n")
        self.assert_rejected(self.mutants(), "commit them first", "new:")

    def test_some_of_the_mutants_are_chosen(self):
        self.commit()
        code, text = self.mutants("--only", "src/net/a.cpp", "--every", "4", "--label", "unit")
        self.assertEqual(code, 0, text)
        self.assertIn("[mutants] no_bound: killed", text)
        self.assertNotIn("other_order", text)

    def test_a_label_without_tests_is_an_error(self):
        self.commit()
        self.assert_rejected(self.mutants("--label", "none"), "is not built and tested")


if __name__ == "__main__":
    unittest.main()
