"""The pages by themselves: links lead somewhere, code is checked by a test, each page is in the menu of the site."""

import ast
import json
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
PAGES = [ROOT / name for name in subprocess.check_output(LIST, cwd=ROOT, text=True).split() if (ROOT / name).exists()]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLAIN = {"toml", "", "ini", "yaml", "cmake", "nginx"}  # no test reads these
TESTED = {"cpp", "js", "console", "python", "json", "python run", "python server"}
LANGUAGES = PLAIN | TESTED | {f"{kind} {side}" for kind in ("json", "http") for side in ("request", "response")}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def without_code(text):
    return BLOCK.sub("", text)


def anchors(text):
    """The anchors of a page's headings, as GitHub and the site make them."""
    found, seen = set(), {}
    for heading in re.findall(r"^#+ +(.+?)\s*$", without_code(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken_links(page, text):
    for link in LINK.findall(without_code(text)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(TEXTS[target]):
            yield f"{link}: the page has no such heading"


def fault_of_code(language, code):
    """Why a block cannot be read; empty if it can, or if its language is not one of those that are parsed here."""
    try:
        if language == "python":
            ast.parse(code)
        elif language == "json":
            json.loads(code)
    except (SyntaxError, ValueError) as error:
        return str(error)
    return "" if language in LANGUAGES else f"the language {language!r} is none that a test knows"


def pages_in(path, pattern):
    """The pages that a test names."""
    return set(re.findall(pattern, (ROOT / path).read_text()))


class Pages(unittest.TestCase):
    def assert_none(self, faults):
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_links_and_anchors_lead_somewhere(self):
        self.assertGreater(sum(len(LINK.findall(text)) for text in TEXTS.values()), 300)
        faults = [(page, fault) for page, text in TEXTS.items() for fault in broken_links(page, text)]
        self.assert_none([f"{name_of(page)}: {fault}" for page, fault in faults])

    def test_a_broken_link_is_found(self):
        page = ROOT / "docs/planted.md"
        text = "[c](nothing.md) [d](protocol.md#errors) [e](protocol.md#nothing) [f](https://x.y/z)\n"
        expected = ["nothing.md: there is no such file", "protocol.md#nothing: the page has no such heading"]
        self.assertEqual(list(broken_links(page, text)), expected)
        self.assertEqual(anchors("# `a`: [b](c.md), d\n\n## A_b\n\n## A_b\n"), {"a-b-d", "a_b", "a_b-1"})

    def test_code_can_be_read(self):
        faults = []
        for page, text in TEXTS.items():
            for _, language, code in BLOCK.findall(text):
                if fault := fault_of_code(language.strip(), code):
                    faults.append(f"{name_of(page)}: {fault}\n{code[:200]}")
        self.assert_none(faults)

    def test_code_that_cannot_be_read_is_found(self):
        self.assertIn("invalid syntax", fault_of_code("python", "x ="))
        self.assertIn("Expecting", fault_of_code("json", "{1}"))
        self.assertIn("none that a test knows", fault_of_code("pyhton", ""))

    def test_each_block_of_code_is_run_or_compiled_by_a_test(self):
        compiled = pages_in("tests/docs/CMakeLists.txt", r"[\w/.-]+\.md")
        replayed = pages_in("tests/integration/CMakeLists.txt", r"(?<=PROJECT_SOURCE_DIR}/)[\w/.-]+\.md")
        run = set().union(*(pages_in(name_of(test), r"[\w/.-]+\.md") for test in (ROOT / "tests/python").glob("*.py")))
        in_browser = pages_in("tests/dashboard/test_client.py", r"docs/[\w/.-]+\.md")
        faults = []
        for page, text in TEXTS.items():
            name = name_of(page)
            for comment, language, _ in BLOCK.findall(text):
                language = language.strip()
                shown = comment.startswith("file: ")
                if language in {"console", "python run"} or language.endswith((" request", " response")) or shown:
                    tested = name in replayed
                elif language == "cpp":
                    tested = name in compiled
                elif language.startswith("python"):
                    tested = name in run
                elif language == "js":
                    tested = name in in_browser
                else:
                    continue
                if not tested:
                    faults.append(f"{name}: no test reads its blocks of {comment or language}")
        self.assert_none(sorted(set(faults)))

    def test_each_page_of_the_docs_is_in_the_menu_of_the_site(self):
        menu = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]))
        pages = {name_of(page).removeprefix("docs/") for page in PAGES if name_of(page).startswith("docs/")}
        self.assertEqual(pages - menu, set())


if __name__ == "__main__":
    unittest.main()
