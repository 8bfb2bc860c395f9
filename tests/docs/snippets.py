"""Makes one C++ file of all ```cpp blocks of the documents given, so that they are compiled.

snippets.py OUT DOCUMENT...

A block with functions, macros or types stands in a namespace of its own, one with statements in a function of its own;
what they use without saying where it comes from is in snippets.hpp. Includes, and what must be at global scope, come
before them."""
import pathlib
import re
import sys

GLOBAL = re.compile(r"^(#include .*|SHARED_TENSOR_OBJECT\(.*\);.*)$", re.MULTILINE)
DEFINES = re.compile(r"^(SHARE\(|SHARED_TENSOR_|struct |enum |namespace |int main|[\w:<>]+ \w+\([^;]*\) \{)", re.MULTILINE)


def blocks(path):
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r"^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 2, found.group(1)


def wrapped(name, line, path, code):
    body = f'#line {line} "{path}"\n' + GLOBAL.sub("", code)
    if DEFINES.search(code):
        return f"namespace {name} {{\n{body}}}\n"
    return f"namespace {name} {{\nvoid run(GIVEN) {{\n{{\n{body}}}\n}}\n}}\n"


def main():
    out, documents = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    first, rest = [], []
    for document in documents:
        for line, code in blocks(document):
            first += [found.group(1) for found in GLOBAL.finditer(code)]
            rest.append(wrapped(f"snippet_{document.stem.replace('-', '_')}_{line}", line, document, code))
    if not rest:
        sys.exit("snippets.py: no ```cpp block in " + ", ".join(map(str, documents)))
    includes = sorted({line.split("  ")[0] for line in first if line.startswith("#")})
    others = [line for line in first if not line.startswith("#")]
    out.write_text("\n".join([*includes, '#include "docs/snippets.hpp"', *others, *rest]), encoding="utf-8")


main()
