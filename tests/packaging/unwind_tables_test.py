"""Reads the unwind tables of the built programs: no two functions may have entries at the same address.

gcc 12 may emit a function of no length (the cold part of a std::visit that cannot be reached). If the linker puts it at
the address of another function, an exception that passes through that function may find the empty entry, and the
process aborts. So code for which gcc does that must be written in another way.
"""

import argparse
import collections
import re
import subprocess
import sys

ENTRY = re.compile(r"FDE cie=\w+ pc=([0-9a-f]+)\.\.([0-9a-f]+)")


def hidden(program):
    """The addresses of functions whose entries an empty entry may hide."""
    done = subprocess.run(["readelf", "--debug-dump=frames", program], capture_output=True, text=True, check=True)
    entries = ENTRY.findall(done.stdout)
    assert len(entries) > 100, f"{program}: readelf shows only {len(entries)} entries"
    at = collections.Counter(start for start, _ in entries)
    return sorted({start for start, end in entries if start == end and at[start] > 1})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+")
    failed = False
    for program in parser.parse_args().programs:
        if found := hidden(program):
            failed = True
            names = subprocess.run(["addr2line", "-fCe", program, *found], capture_output=True, text=True).stdout
            print(f"{program}: functions whose unwind entries are hidden: {', '.join(found)}\n{names}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
