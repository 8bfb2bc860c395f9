"""scripts/docs builds the site without a warning, with the references, and it needs nothing of other hosts."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "build/docs/site"


def text_of(page):
    return (SITE / page).read_text(encoding="utf-8")


def public_names(module):
    """The names in the __all__ of a module of the Python package, but for modules and special names."""
    tree = ast.parse((ROOT / "python/shared_tensor" / module).read_text())
    lists = [s.value for s in tree.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "__all__"]
    return {name for name in ast.literal_eval(lists[0]) if not name.startswith("__") and name != "errors"}


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SITE, ignore_errors=True)
        done = subprocess.run([sys.executable, ROOT / "scripts/docs"], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)

    def test_each_page_of_the_docs_is_a_page_of_the_site(self):
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "examples/README.md", ROOT / "benchmarks/README.md"]:
            name = re.sub(r"README$", "index", page.relative_to(ROOT).as_posix().removesuffix(".md"))
            self.assertTrue((SITE / f"{name.removeprefix('docs/')}.html").exists(), name)
        self.assertIn("shared_tensor lets a process offer its functions", text_of("index.html"))

    def test_the_cpp_reference_has_each_public_header_with_its_comments(self):
        page = text_of("cpp_reference.html")
        headers = [h for h in (ROOT / "include/shared_tensor").rglob("*.hpp") if "detail" not in h.parts]
        for header in headers:
            name = header.relative_to(ROOT / "include/shared_tensor").as_posix()
            link = re.search(rf'href="(cpp/[^"]+_8hpp\.html)"><code>{re.escape(name)}</code>', page)
            self.assertIsNotNone(link, f"docs/cpp_reference.md does not list {name}")
            self.assertIn(header.name, text_of(link[1]))
        client = text_of("cpp/classshared__tensor_1_1Client.html")
        self.assertIn("A connection pool to one server", client)
        self.assertIn("new_session", client)
        self.assertIn("Calls functions of a shared-tensor-server.", text_of("cpp/client_8hpp.html"))
        self.assertIn('"../cpp_reference.html"', text_of("cpp/menudata.js"))  # the way back

    def test_the_python_reference_has_each_public_name_with_its_docstring(self):
        page = text_of("python_reference.html")
        for module in ["__init__", "async_client", "compute/__init__", "named_tensors", "node/__init__", "weights"]:
            for name in public_names(f"{module}.py"):
                self.assertRegex(page, rf'id="shared_tensor\.([a-z_]+\.)?{name}"', f"{module}: {name}")
        self.assertIn("The call was cancelled (-32004).", page)

    def test_each_class_function_and_method_of_the_python_reference_has_a_docstring(self):
        entries = re.split(r'<h\d id="(shared_tensor[\w.]*)"', text_of("python_reference.html"))
        described = {
            name: re.search(r'<div class="doc doc-contents[^"]*">(.*)', body, re.DOTALL)
            for name, body in zip(entries[1::2], entries[2::2], strict=True)
            if "doc-symbol-attribute" not in body
        }
        self.assertGreater(len(described), 200)
        without = [name for name, text in described.items() if not text or not re.sub("<[^>]+>", "", text[1]).strip()]
        self.assertEqual(without, [])

    def test_a_header_of_the_library_leads_to_its_reference_and_a_source_to_its_text(self):
        self.assertIn('href="source/examples/streams.cpp.html"', text_of("streams.html"))
        self.assertIn("include", text_of("source/examples/streams.cpp.html"))

    def test_the_search_finds_an_error_by_its_text(self):
        index = json.loads(text_of("search/search_index.json"))
        found = {
            entry["location"] for entry in index["docs"] if "the token file is readable by others" in entry["text"]
        }
        self.assertEqual(found, {"errors.html#the-server-does-not-start"})

    def test_no_page_loads_anything_from_another_host(self):
        tags = r'<(?:script|img|iframe)[^>]*\ssrc|<link(?=[^>]*rel="(?:stylesheet|preconnect|icon)")[^>]*\shref'
        loads = re.compile(rf'(?:{tags})="(?:https?:)?//[^"]+')
        for page in SITE.glob("*.html"):
            self.assertEqual(loads.findall(page.read_text(encoding="utf-8")), [], page.name)


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("doxygen is missing: scripts/install_packages --checkers")
        sys.exit(77)
    unittest.main()
