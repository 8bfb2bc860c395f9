#!/usr/bin/env python3
"""Replays the examples of a Markdown page against a running daemon.

    replay.py --daemon PROGRAM [--plugin FILE] [--model NAME=PATH] PAGE.md...

Fenced blocks come in pairs, a request and its response:

    ```json request            the body of POST /jsonrpc
    ```json response           the body of the answer, compared as JSON
    ```http request            METHOD PATH, headers, an empty line, the body
    ```http response           HTTP/1.1 STATUS, headers that must be there, an empty line, the body

and others stand for themselves:

    ```python run              a program that must not raise (URL is the daemon's address)
    ```console                 commands after "$ ", each followed by the JSON that it prints; 127.0.0.1:2537 is the daemon
    <!-- file: PATH -->        the block that follows is that file of the repository

A string "<name>" in a response stands for any value; what it met takes its place in later requests, so ids flow from one
example to the next. A member "...": "..." says that an object has more members than are shown, a last element "..." that
an array has more elements. HOST in a request is the daemon's host and port.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from daemon import Daemon

FENCE = re.compile(r"^```(json|http) (request|response)\n(.*?)^```$|(?:^<!-- file: (.*?) -->\n)?^```(\w* ?\w*)\n(.*?)^```$", re.M | re.S)
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PLACEHOLDER = re.compile(r"^<([a-z ]+)>$")


class Mismatch(Exception):
    pass


def compare(expected, got, known, place="answer"):
    """Raises Mismatch with the place of the first difference."""
    if isinstance(expected, str) and (name := PLACEHOLDER.match(expected)):
        known[name.group(1)] = got
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        missing = [key for key in expected if key != "..." and key not in got]
        extra = [] if "..." in expected else [key for key in got if key not in expected]
        if missing or extra:
            raise Mismatch(f"{place}: members missing {missing}, not shown {extra}")
        for key, value in expected.items():
            if key != "...":
                compare(value, got[key], known, f"{place}.{key}")
        return
    if isinstance(expected, list) and isinstance(got, list):
        shown = expected[:-1] if expected and expected[-1] == "..." else expected
        if len(got) < len(shown) or (shown is expected and len(got) != len(shown)):
            raise Mismatch(f"{place}: {len(got)} elements, shown are {len(shown)}")
        for index, value in enumerate(shown):
            compare(value, got[index], known, f"{place}[{index}]")
        return
    if type(expected) is not type(got) or expected != got:
        raise Mismatch(f"{place}: shown is {json.dumps(expected)}, the daemon says {json.dumps(got)}")


def head_and_body(text):
    """First line, headers and body of an http block."""
    head, _, body = text.partition("\n\n")
    first, *lines = head.strip().splitlines()
    headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines]
    return first, headers, body.strip()


class Replay:
    def __init__(self, url):
        self.url = url
        self.host = url.removeprefix("http://")
        self.known = {}

    def filled(self, text):
        for name, value in self.known.items():
            text = text.replace(f"<{name}>", str(value))
        return text.replace("HOST", self.host)

    def send(self, kind, text):
        """Status, headers and body of the answer."""
        method, path, headers, body = "POST", "/jsonrpc", [("Content-Type", "application/json")], self.filled(text)
        if kind == "http":
            first, headers, body = head_and_body(self.filled(text))
            method, path = first.split()[:2]
        connection = http.client.HTTPConnection(self.host, timeout=40)
        connection.putrequest(method, path, skip_host=any(name == "Host" for name, _ in headers))
        for name, value in headers:
            connection.putheader(name, value)
        if method in ("POST", "PUT"):
            connection.putheader("Content-Length", str(len(body.encode())))
        connection.endheaders(body.encode() if method in ("POST", "PUT") else None)
        answer = connection.getresponse()
        result = answer.status, answer.headers, answer.read().decode()
        connection.close()
        return result

    def check(self, kind, text, answer):
        status, headers, body = answer
        wanted_status, wanted_headers, wanted_body = 200, [], text.strip()
        if kind == "http":
            first, wanted_headers, wanted_body = head_and_body(text)
            wanted_status = int(first.split()[1])
        if status != wanted_status:
            raise Mismatch(f"status {status} instead of {wanted_status}: {body}")
        for name, value in wanted_headers:
            compare(value, headers.get(name), self.known, name)
        if not wanted_body:
            if body:
                raise Mismatch(f"a body where none is shown: {body}")
            return
        compare(json.loads(wanted_body), json.loads(body), self.known)

    def console(self, text):
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, shown = part.split("\n", 1)
            command = command.replace("http://127.0.0.1:2537", self.url)
            ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=40, check=True,
                                   env={**os.environ, "no_proxy": "*", "SHARED_TENSOR_URL": self.url})
            compare(json.loads(shown), json.loads(ended.stdout), self.known)

    def page(self, path):
        """Replays one page; returns the number of examples and of failures."""
        text = path.read_text()
        examples = failures = 0
        answer = None
        for block in FENCE.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            kind, side, content, file, tag, text_of_block = block.groups()
            try:
                if file:
                    if (REPOSITORY / file).read_text() != text_of_block:
                        raise Mismatch(f"it is not {file}")
                elif tag == "python run":
                    exec(compile(text_of_block, f"{path}:{line}", "exec"), {"URL": self.url})
                elif tag == "console":
                    self.console(text_of_block)
                elif side is None:
                    continue
                elif side == "request":
                    if answer is not None:
                        raise Mismatch("a request that follows a request")
                    answer = self.send(kind, content)
                    continue
                else:
                    if answer is None:
                        raise Mismatch("a response without a request")
                    given, answer = answer, None
                    self.check(kind, content, given)
                examples += 1
            except Exception as error:  # every example is tried
                failures += 1
                print(f"{path}:{line}: {type(error).__name__}: {error}")
        if answer is not None:
            failures += 1
            print(f"{path}: the last request has no response")
        return examples, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    options = [word for plugin in arguments.plugin for word in ("--load", plugin)]
    options += [word for model in arguments.model for word in ("--model", model)]
    with Daemon(arguments.daemon, "--log-level", "warn", *options) as daemon:
        replay = Replay(daemon.url)
        results = [replay.page(page) for page in arguments.pages]
    examples, failures = sum(r[0] for r in results), sum(r[1] for r in results)
    print(f"{examples} examples answered as shown, {failures} not")
    if failures or not examples:
        sys.exit(1)


if __name__ == "__main__":
    main()
