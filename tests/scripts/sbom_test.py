import importlib.machinery
import importlib.util
import json
import re
import sys
import unittest

from planted import SCRIPTS

ROOT = SCRIPTS.parent
PINS = json.loads((ROOT / "cmake/dependencies.json").read_text())


def load():
    loader = importlib.machinery.SourceFileLoader("sbom", str(SCRIPTS / "sbom"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sbom", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


SBOM = load()
PINNED = {one["name"]: one for one in SBOM.pinned(PINS) if one["scope"] == "required"}


class Sbom(unittest.TestCase):
    def test_each_pinned_library_that_the_build_contains_is_listed(self):
        self.assertEqual(set(PINNED), {"cpp-httplib", "dlpack", "uPlot"})
        licences = (ROOT / "dashboard/licences.txt").read_text()
        self.assertIn(f"uPlot {PINNED['uPlot']['version']} ", licences)

    def test_each_library_that_is_compiled_in_has_its_licence_in_the_packages(self):
        text = (ROOT / "deploy/debian/copyright").read_text()
        stanzas = [stanza for stanza in text.split("\n\n") if stanza.startswith("Files:")]
        named = [stanza.partition("Comment:")[2] for stanza in stanzas]
        for library in [*SBOM.COMPILED_IN, *PINNED, "nanobind,"]:
            self.assertEqual(len([one for one in named if library in one]), 1, library)
        used = set(re.findall(r"^License: (.+)$", "\n".join(stanzas), re.MULTILINE))
        self.assertEqual(used, set(re.findall(r"\n\nLicense: (.+)\n ", text)))


if __name__ == "__main__":
    unittest.main()
