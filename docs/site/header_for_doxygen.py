"""Prints a public header for Doxygen: the comment at its beginning is the description of the file.

Attributes are left out, because Doxygen 1.9.4 takes one before a name for a part of the name."""

import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
text = re.sub(r"\[\[[^]]*\]\] ?", "", text)
head = re.search(r"\A#pragma once\n(?:\n#include [^\n]*|\n)*?\n((?://(?: [^\n]*)?\n)+)\n", text)
if head:
    comment = "".join("///" + line.removeprefix("//") for line in head[1].splitlines(keepends=True))
    text = text.replace(head[1], "/// @file\n" + comment, 1)
else:
    text = "/// @file\n" + text
sys.stdout.write(text)
