import json
import subprocess
import unittest

from planted import PlantedTree


class Release(PlantedTree):
    def setUp(self):
        super().setUp()
        self.version("1.2.3")
        self.changes("## 1.2.3 (2026-01-31)\n\n- New: a thing.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words],
            cwd=self.root,
            check=True,
            capture_output=True,
        )

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")

    def version(self, text):
        self.plant("include/shared_tensor/version.hpp", f'#pragma once\n\n#define SHARED_TENSOR_VERSION "{text}"\n')

    def changes(self, text):
        self.plant("CHANGELOG.md", "# Changes\n\n" + text)

    def check(self):
        return self.script("release", "--check", "--root", self.root)

    def test_a_tree_that_is_in_order_is_accepted(self):
        self.assert_accepted(self.check())

    def test_a_version_without_a_section_of_its_own_is_rejected(self):
        for first in ("## Unreleased\n\n- x\n", "## 1.2.2 (2026-01-31)\n\n- x\n", "## 1.2.3\n\n- x\n", ""):
            self.changes(first)
            self.commit()
            self.assert_rejected(self.check(), "## 1.2.3 (YYYY-MM-DD)")

    def test_an_empty_section_is_rejected(self):
        self.changes("## 1.2.3 (2026-01-31)\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n")
        self.commit()
        self.assert_rejected(self.check(), "is empty")

    def test_a_version_that_is_none_is_rejected(self):
        self.version("1.2")
        self.commit()
        self.assert_rejected(self.check(), "not MAJOR.MINOR.PATCH")

    def test_changes_that_are_not_committed_are_rejected(self):
        self.plant("new.txt", "")
        self.assert_rejected(self.check(), "not committed")

    def test_a_version_that_was_released_is_rejected(self):
        self.git("tag", "v1.2.3")
        self.assert_rejected(self.check(), "raise the version")

    def test_the_bill_of_materials_names_what_the_programs_need(self):
        # A program of this machine stands in for a build.
        for name in ("shared-tensor-server", "shared-tensor-keeper", "shared-tensor"):
            (self.root / "daemon").mkdir(exist_ok=True)
            (self.root / "daemon" / name).symlink_to("/usr/bin/openssl")
        code, text = self.script("sbom", "--build", self.root)
        if "scripts/install_packages" in text or "no Debian package" in text:
            self.skipTest(text)
        self.assertEqual(code, 0, text)
        bom = json.loads(text)
        names = {one["name"] for one in bom["components"]}
        self.assertLessEqual({"libssl3", "libc6", "nlohmann-json3-dev", "cpp-httplib"}, names)
        self.assertEqual(set(bom["dependencies"][0]["dependsOn"]), {one["bom-ref"] for one in bom["components"]})
        self.assertTrue(all(one["purl"].startswith("pkg:") and one["version"] for one in bom["components"]))

    def test_a_bill_of_materials_without_a_build_is_an_error(self):
        self.assert_rejected(self.script("sbom", "--build", self.root), "build it first")


if __name__ == "__main__":
    unittest.main()
