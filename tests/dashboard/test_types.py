"""shared_tensor.d.ts: the TypeScript compiler reads it, and it describes shared_tensor.js."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TYPES = REPOSITORY / "dashboard/shared_tensor.d.ts"
SCRIPTS = REPOSITORY / "tests/dashboard/types"
OPTIONS = {"strict": True, "noEmit": True, "allowJs": True, "types": [], "lib": ["es2022", "dom", "dom.iterable"]}
MODULES = {"target": "es2022", "module": "es2022", "moduleResolution": "node"}


@pytest.fixture
def compiled(tmp_path):
    """Compiles a script beside the types and a copy of the library; returns what the compiler says."""
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("no TypeScript compiler is installed (scripts/install_packages --checkers)")
    shutil.copy(TYPES, tmp_path)
    shutil.copytree(TYPES.with_name("shared_tensor"), tmp_path / "library/shared_tensor")
    shutil.copy(TYPES.with_name("shared_tensor.js"), tmp_path / "library")

    def compile_script(text: str) -> str:
        (tmp_path / "script.ts").write_text(text)
        (tmp_path / "tsconfig.json").write_text(
            json.dumps({"compilerOptions": OPTIONS | MODULES, "files": ["script.ts"]})
        )
        return subprocess.run([compiler, "-p", tmp_path], capture_output=True, text=True).stdout

    return compile_script


def test_a_page_in_typescript_uses_every_name(compiled):
    script = (SCRIPTS / "page.ts").read_text()
    for name in re.findall(r"^export (?:type|interface|class|function) (\w+)", TYPES.read_text(), re.MULTILINE):
        assert re.search(rf"\b{name}\b", script.partition("from ")[2]), f"page.ts does not use {name}"
    assert compiled(script) == ""


def test_the_types_declare_what_the_library_has(compiled):
    assert compiled((SCRIPTS / "same_names.ts").read_text()) == ""


def test_the_example_of_the_documentation_has_the_right_types(compiled):
    page = (REPOSITORY / "docs/dashboard.md").read_text()
    example = re.search(r"```js\n(import .*?)```", page, re.DOTALL).group(1)
    example = example.replace("http://127.0.0.1:2537/shared_tensor.js", "./shared_tensor.js")
    example = example.replace("catch (error)", "catch (error: any)")
    assert compiled("declare const abort: AbortController;\n" + example) == ""


def test_a_name_that_is_only_in_the_types_is_found(compiled, tmp_path):
    with (tmp_path / TYPES.name).open("a") as types:
        types.write("export function formatNpz(tensor: Tensor): Uint8Array;\n")
    assert "formatNpz" in compiled((SCRIPTS / "same_names.ts").read_text())


def test_the_module_exports_the_values_that_its_types_declare(page):
    declared = re.findall(r"^export (?:class|function) (\w+)", TYPES.read_text(), re.MULTILINE)
    assert page.evaluate("async () => Object.keys(await import('/shared_tensor.js')).sort()") == sorted(declared)
