import unittest

from planted import PlantedTree


class CheckHeaders(PlantedTree):
    def check(self):
        return self.script("check_headers", "--root", self.root)

    def test_a_header_that_includes_what_it_uses_passes(self):
        self.plant("include/shared_tensor/a.hpp", "#pragma once\n#include <string>\nstruct A { std::string name; };\n")
        self.assert_accepted(self.check())

    def test_a_header_that_leans_on_another_fails(self):
        self.plant("include/shared_tensor/a.hpp", "#pragma once\nstruct A { std::string name; };\n")
        self.assert_rejected(self.check(), "<shared_tensor/a.hpp> does not compile")

    def test_a_header_without_a_guard_fails(self):
        self.plant("include/shared_tensor/a.hpp", "struct A {};\n")
        self.assert_rejected(self.check(), "redefinition")


if __name__ == "__main__":
    unittest.main()
