import unittest

from planted import PlantedTree


class PythonReference(PlantedTree):
    """Plants a package with what the page of the real one needs: its modules and the names of shared-tensor 0.1."""

    def setUp(self):
        super().setUp()
        for module in ["async_client", "handles", "named_tensors", "weights", "errors", "compute", "streams", "node"]:
            self.plant(f"package/{module}.py", '"""Texts."""\n')
        self.plant("package/__init__.py", "from .client import Client\n\n__all__ = ['Client']\n")
        self.client('"""Returns the sum."""')

    def client(self, docstring, parameters="self, a: int, b: int = 1"):
        self.plant(
            "package/client.py",
            f'class Client:\n    """Adds."""\n    def add({parameters}) -> int:\n        {docstring}\n        return a + b\n',
        )

    def run_script(self, *arguments):
        return self.script("python_reference", "--package", self.root / "package", "--page", self.root / "page.md", *arguments)

    def test_the_page_of_this_repository_is_that_of_its_code(self):
        self.assertEqual(self.script("python_reference", "--check"), (0, ""))

    def test_the_page_has_signatures_and_docstrings(self):
        self.assertEqual(self.run_script(), (0, ""))
        page = (self.root / "page.md").read_text()
        self.assertIn("### Client\n\n```python\nclass Client\n```\n\nAdds.\n", page)
        self.assertIn("```python\nadd(a: int, b: int = 1) -> int\n```\n\nReturns the sum.\n", page)
        self.assertEqual(self.run_script("--check"), (0, ""))

    def test_another_docstring_or_signature_makes_the_check_fail(self):
        self.run_script()
        for change in [('"""Returns a + b."""',), ('"""Returns the sum."""', "self, a: int, b: int = 2")]:
            self.client(*change)
            code, output = self.run_script("--check")
            self.assertEqual(code, 1)
            self.assertIn("run scripts/python_reference", output)

    def test_a_method_without_a_docstring_is_rejected(self):
        self.client("pass")
        self.assertEqual(self.run_script(), (1, "without a docstring: Client.add\n"))


if __name__ == "__main__":
    unittest.main()
