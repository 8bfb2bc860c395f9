"""Compares the tests that docs/faults.md names with those that there are.

faults.py DOCUMENT TESTS     TESTS is the folder of the tests' sources"""
import pathlib
import re
import sys

document, tests = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sources = {path: path.read_text(encoding="utf-8") for path in tests.rglob("*") if path.suffix in {".cpp", ".txt"}}
known = {name for text in sources.values() for name in re.findall(r'TEST_CASE(?:_METHOD)?\((?:\w+,)?\s*"([^"]+)"', text)}
known |= {name for text in sources.values() for name in re.findall(r"add_test\(NAME (\S+)", text)}

wrong, rows = [], 0
for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) != 5 or cells[1] in {"fault", "---"}:
        continue
    rows += 1
    named = re.findall(r'"([^"]+)"', cells[3]) + re.sub(r'"[^"]+"', "", cells[3]).replace(",", " ").split()
    wrong += [f"{document.name}:{number}: there is no test {name}" for name in named if name not in known]
    if not named:
        wrong.append(f"{document.name}:{number}: the fault has no test")
if not rows:
    wrong.append(f"{document.name} has no table of faults")
sys.exit("\n".join(wrong) or 0)
