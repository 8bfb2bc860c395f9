"""Every thread that the library names stands in docs/threads.md, and the page names no other."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names_in_code():
    found = set()
    for path in [*(ROOT / "src").rglob("*.?pp"), *(ROOT / "daemon").rglob("*.?pp")]:
        found |= {name.rstrip("-") for name in re.findall(r'"(st-[a-z]+-?)', path.read_text())}
    return found


def names_on_page():
    page = (ROOT / "docs" / "threads.md").read_text()
    return {name.removesuffix("-N") for name in re.findall(r"`(st-[a-z]+(?:-N)?)`", page)}


class ThreadsPage(unittest.TestCase):
    def test_every_thread_of_the_code_is_on_the_page(self):
        self.assertGreater(len(names_in_code()), 5)
        self.assertEqual(names_in_code() - names_on_page(), set())

    def test_every_thread_of_the_page_is_in_the_code(self):
        self.assertEqual(names_on_page() - names_in_code(), set())


if __name__ == "__main__":
    unittest.main()
