"""Every error of the source is on docs/errors.md, and the page has no code that the source does not have."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/errors.md").read_text()

# The functions that make an error for a client. Their first literal of several words is the text that the client gets.
CALL = re.compile(
    r"\b(?:parse_error|invalid_request|invalid_params|deadline_exceeded|cancelled|not_authorised|out_of_memory|busy"
    r"|response_too_large|with_detail|rejected_as|HeadRejection|Rejection|reject|reject_syntax|reject_request)"
    r'\s*[({](?:[^"();]|\([^()"]*\))*"((?:[^"\\]|\\.)*)"'
)
PLACES = [
    "src/protocol/json_rpc",
    "src/server/auth/access.cpp",
    "src/server/rpc",
    "src/server/router.cpp",
    "src/server/local",
    "src/server/methods",
    "src/server/streams",
    "src/server/metrics/operations.cpp",
    "src/runtime/calls",
    "src/net/server",
    "src/net/message/head_parser.cpp",
]


def words(text):
    """The words of a text, however it is quoted and broken into lines."""
    return " ".join(text.replace("\\\\", "\\").replace('\\"', '"').replace("`", "").split())


def texts_in(source):
    return [text for text in CALL.findall(source) if len(text.split()) >= 3]


def sources():
    for place in PLACES:
        path = ROOT / place
        yield from sorted(path.rglob("*.?pp")) if path.is_dir() else [path]


def codes_in_source():
    header = (ROOT / "include/shared_tensor/error.hpp").read_text()
    messages = (ROOT / "src/protocol/json_rpc/error.cpp").read_text()
    for name, code in re.findall(r"^    (\w+) = (-\d+),", header, re.MULTILINE):
        yield code, re.search(rf'ErrorCode::{name}: return "([^"]+)"', messages)[1]


class ErrorsPage(unittest.TestCase):
    def test_every_code_has_a_section_with_its_message_and_no_other_has_one(self):
        self.assertEqual(set(re.findall(r"^## (-\d+) (.+)$", PAGE, re.MULTILINE)), set(codes_in_source()))

    def test_every_exception_of_the_clients_is_named(self):
        header = (ROOT / "include/shared_tensor/error.hpp").read_text()
        python = (ROOT / "python/shared_tensor/errors.py").read_text()
        names = {*re.findall(r"^SHARED_TENSOR_DETAIL_ERROR\((\w+)\)", header, re.MULTILINE)}
        names |= {*re.findall(r"^class \[\[.*?\]\] (\w+) :", header, re.MULTILINE)}
        names |= {*re.findall(r"^class (\w+)", python, re.MULTILINE)}
        self.assertGreater(len(names), 20)
        self.assertEqual({name for name in names if not re.search(rf"`{name}`", PAGE)}, set())

    def test_every_text_of_the_server_is_on_the_page(self):
        page, missing, found = words(PAGE), [], 0
        for path in sources():
            for text in texts_in(path.read_text()):
                found += 1
                if words(text)[:40].strip() not in page:
                    missing.append(f"{path.relative_to(ROOT)}: {text}")
        self.assertGreater(found, 90)
        self.assertEqual("\n".join(missing), "", "docs/errors.md lacks these texts")

    def test_a_new_text_in_the_source_would_be_found(self):
        source = """throw Failure(json_rpc::busy(wait(1),
            "a new limit is reached" " here"));
            return Rejection{403, "may not call this", Kind::user};"""
        self.assertEqual(texts_in(source), ["a new limit is reached", "may not call this"])

    def test_every_status_of_the_heads_parser_is_on_the_page(self):
        section = PAGE[PAGE.index("## Status") : PAGE.index("## The server does not start")]
        files = ["src/net/message/head_parser.cpp", "src/net/server/request_runner.cpp"]
        source = "".join((ROOT / file).read_text() for file in files)
        used = set(re.findall(r"(?:HeadRejection|return|reject\()\s*\{(\d{3}),", source))
        self.assertGreater(len(used), 6)
        self.assertEqual(used - set(re.findall(r"\b\d{3}\b", section)), set())


if __name__ == "__main__":
    unittest.main()
