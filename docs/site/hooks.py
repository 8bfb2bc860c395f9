"""What the site has beside the pages of docs/.

The pages link to files of the repository: README.md, examples, sources. On the site README.md is the first page. Other
Markdown files are pages at their paths, a header of the library leads to its page of the C++ reference, and each other
file is a page with its text, under source/.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
import subprocess
import xml.etree.ElementTree as xml
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
PURPOSE = re.compile(r"^(```\w+) \w+$", re.MULTILINE)  # "```json request": for the tests that replay the page
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Room for the tables of the pages, which are wide.
STYLE = """.md-grid { max-width: 85rem; }
.md-typeset table:not([class]) :is(th, td) { min-width: 3rem; padding: .6em .8em; }
"""
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".ipynb": "json"}

_headers: dict[str, str] = {}  # "include/shared_tensor/client.hpp": "cpp/client_8hpp.html"


def on_files(files: Files, config: Any) -> Files:
    _add_cpp_reference(files, config)
    pages = [ROOT / "README.md", *(ROOT / "docs" / file.src_uri for file in files.documentation_pages())]
    for page in pages:  # grows: an added page may link to others
        for target in _targets(page):
            name = _name_on_site(target)
            if files.get_file_from_path(name) is None:
                pages += [target] if target.suffix == ".md" else []
                files.append(File.generated(config, name, content=_text(target)))
    files.append(File.generated(config, "index.md", content=_text(ROOT / "README.md")))
    files.append(File.generated(config, "wide.css", content=STYLE))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Changes the links that leave docs/ to the places that their targets have on the site."""
    here = _origin(page.file.src_uri)

    def changed(link: re.Match[str]) -> str:
        target = pathlib.Path(os.path.normpath(here.parent / link[2]))
        if "://" in link[2] or not target.exists():
            return link[0]
        return link[1] + posixpath.relpath(_name_on_site(target), posixpath.dirname(page.file.src_uri)) + link[3]

    if here.suffix != ".md":
        return markdown
    return PURPOSE.sub(r"\1", _outside_of_code(markdown, lambda text: LINK.sub(changed, text)))


def _outside_of_code(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for code in FENCED.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])


def _origin(name: str) -> pathlib.Path:
    """The file of the repository of which a page is made."""
    if name == "index.md":
        return ROOT / "README.md"
    if name.startswith("source/"):
        return ROOT / name.removeprefix("source/").removesuffix(".md")
    return ROOT / "docs" / name if (ROOT / "docs" / name).exists() else ROOT / name


def _name_on_site(target: pathlib.Path) -> str:
    name = target.relative_to(ROOT).as_posix()
    if name == "README.md":
        return "index.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return _headers.get(name) or (name if target.suffix == ".md" else f"source/{name}.md")


def _targets(page: pathlib.Path) -> list[pathlib.Path]:
    """The files and folders outside of docs/ to which a page links."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = [
        pathlib.Path(os.path.normpath(page.parent / link[2])) for link in LINK.finditer(text) if "://" not in link[2]
    ]
    return [target for target in found if target.exists() and ROOT / "docs" not in target.parents]


def _text(target: pathlib.Path) -> str:
    if target.suffix == ".md":
        return target.read_text(encoding="utf-8")
    files = sorted(path for path in target.rglob("*") if path.is_file()) if target.is_dir() else [target]
    parts = [f"---\nsearch: {{exclude: true}}\n---\n\n# {target.name}\n"]
    for file in files:
        fence = f"``` {{.{LANGUAGES.get(file.suffix, 'text')}}}"
        parts.append(f"`{file.relative_to(ROOT)}`\n\n{fence}\n{file.read_text(encoding='utf-8').rstrip()}\n```\n")
    return "\n".join(parts)


def _add_cpp_reference(files: Files, config: Any) -> None:
    layout = ROOT / "build/docs/doxygen/layout.xml"
    layout.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["doxygen", "-l", layout], check=True, capture_output=True)
        back = '<navindex><tab type="user" url="../cpp_reference.html" title="All documentation"/>'
        layout.write_text(layout.read_text().replace("<navindex>", back))
        done = subprocess.run(["doxygen", "docs/site/Doxyfile"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        raise PluginError(
            "doxygen is missing, which makes the C++ reference: scripts/install_packages --checkers"
        ) from None
    if done.returncode != 0:
        raise PluginError(f"doxygen rejects comments of the public headers:\n{done.stderr}")
    html = ROOT / "build/docs/doxygen/html"
    for path in html.rglob("*"):
        if path.is_file():
            files.append(File.generated(config, f"cpp/{path.relative_to(html)}", abs_src_path=str(path)))
    for header in xml.parse(ROOT / "build/docs/doxygen/tags.xml").getroot().iterfind("compound[@kind='file']"):
        path = pathlib.Path(f"{header.findtext('path')}{header.findtext('name')}")
        _headers[path.relative_to(ROOT).as_posix()] = f"cpp/{header.findtext('filename')}"
