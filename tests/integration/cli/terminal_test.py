#!/usr/bin/env python3
"""The programs as a person uses them on a terminal: completion in each shell, manual pages, colours, and top."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from daemon import Daemon
from ports import free_port
from terminal import PATIENCE, Terminal

PLACE = None
PROGRAMS = ["shared-tensor", "shared-tensor-server"]
MANUAL = {"shared-tensor": "manual", "shared-tensor-server": "--manual"}
HELP = {"shared-tensor": "--help", "shared-tensor-server": "--help-all"}


def program(name):
    return {"shared-tensor": PLACE.client, "shared-tensor-server": PLACE.daemon}[name]


def output_of(name, *words):
    return subprocess.run([program(name), *words], capture_output=True, text=True, check=True).stdout


def text_of(file):
    return (PLACE.texts / file).read_text()


def needs(tool):
    return unittest.skipUnless(shutil.which(tool), f"{tool} is missing: scripts/install_packages --checkers")


class ClosedDescriptors(unittest.TestCase):
    """Of a program that is started without some of its standard descriptors."""

    def setUp(self):
        self.server = Daemon(PLACE.daemon, "--load", PLACE.plugin)
        self.addCleanup(self.server.close)

    def test_a_result_that_cannot_be_printed_is_an_error_and_goes_nowhere_else(self):
        words = [PLACE.client, "--url", self.server.url, "call", "echo", '"word"']
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_the_server_opens_nothing_under_the_numbers_of_its_output(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        listens = pathlib.Path(folder.name) / "server.sock"
        words = [PLACE.daemon, "--port", "0", "--unix-socket", str(listens)]
        process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words])
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        end = time.monotonic() + 60
        while not listens.exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.assertEqual({os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)}, {"/dev/null"})


class OnTerminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Daemon(PLACE.daemon, "--load", PLACE.plugin)
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def environment(self, **more):
        path = f"{PLACE.client.parent}:{PLACE.daemon.parent}:{os.environ['PATH']}"
        usual = {"PATH": path, "HOME": str(self.folder), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        return {**usual, "SHARED_TENSOR_URL": self.server.url, **more}

    def terminal(self, *command, **more):
        terminal = Terminal([str(word) for word in command], self.environment(**more))
        self.addCleanup(terminal.close)
        return terminal

    def options_in_help(self, name):
        found = set(re.findall(r"(?m)^ +(?:-\w, )?--(?:\[no-\])?([a-z][a-z-]+)", output_of(name, HELP[name])))
        self.assertGreater(len(found), 20)
        return found

    def run_client(self, *words, **more):
        command = [PLACE.client, *words]
        return subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, timeout=60)

    def call(self, method, *params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.server.url + "/jsonrpc", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


class Completion(OnTerminal):
    """The files that are installed, in the shells themselves."""

    CASES = (
        ("shared-tensor fun", "ctions"),
        ("shared-tensor call sca", "le"),  # the server's functions scale, scaled_ramp and others begin so
        ("shared-tensor --tls-ce", "rtificate"),
        ("shared-tensor-server --max-ta", "sk"),
        ("shared-tensor-server doc", "tor"),
    )

    def assert_completed(self, shell):
        for typed, rest in self.CASES:
            start = len(shell.text)
            shell.send(typed + "\t")
            # The line as the shell shows it, without the sequences that move the cursor.
            shell.wait_for(re.escape(typed) + r"(?:\x1b\[[0-9;?]*[A-Za-z]|[\x07\x08\r])*" + re.escape(rest), start)
            shell.send("\x15\x0b")  # forget the line
            shell.read(0.2)
        shell.send("exit\r")

    def test_bash_completes_commands_options_and_names_of_the_server(self):
        shell = self.terminal(shutil.which("bash"), "--norc", "--noprofile", "-i", PS1="ready> ")
        shell.send("bind 'set enable-bracketed-paste off'\r")
        for name in PROGRAMS:
            shell.send(f"source {PLACE.texts / name}\r")
        shell.send("PS1='go> '\r")
        shell.wait_for(r"\ngo> ")
        self.assert_completed(shell)

    def test_a_name_of_the_server_runs_nothing_in_bash(self):
        name = "weights$(touch ran)"
        ones = {"$tensor": {"dtype": "float32", "shape": [1], "data": [1]}}
        self.assertIn("result", self.call("tensor.put", name, ones))
        shell = self.terminal(shutil.which("bash"), "--norc", "--noprofile", "-i", PS1="ready> ")
        shell.send(f"bind 'set enable-bracketed-paste off'; cd {self.folder}; source {PLACE.texts / 'shared-tensor'}\r")
        shell.send("PS1='go> '\r")
        shell.wait_for(r"\ngo> ")
        shell.send("shared-tensor get wei\t")
        shell.wait_for(re.escape(r"ghts\$\(touch\ ran\)"))
        shell.send("\x15\x0bexit\r")
        self.assertFalse((self.folder / "ran").exists())

    @needs("zsh")
    def test_zsh_completes_commands_options_and_names_of_the_server(self):
        shell = self.terminal(shutil.which("zsh"), "-f", "-i", PS1="ready> ")
        shell.wait_for("ready> ")
        shell.send(f"fpath=({PLACE.texts} $fpath); autoload -U compinit; compinit -u -d {self.folder}/dump\r")
        shell.send("PS1='go> '\r")
        shell.wait_for(r"\ngo> |\rgo> |go> \x1b")
        self.assert_completed(shell)

    @needs("fish")
    def test_fish_completes_commands_options_and_names_of_the_server(self):
        sources = "; ".join(f"source {PLACE.texts / name}.fish" for name in PROGRAMS)
        for typed, rest in [*self.CASES, (f"shared-tensor --url {self.server.url} call ec", "ho")]:
            command = ["fish", "--no-config", "-c", f"{sources}; complete -C '{typed}'"]
            done = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
            self.assertEqual(done.stderr, "")
            word = typed.split()[-1]
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(word + rest)}", typed)

    def test_the_installed_files_are_those_that_the_programs_print(self):
        for name, words in [("shared-tensor", ["completion"]), ("shared-tensor-server", ["--completion"])]:
            for shell, file in [("bash", name), ("zsh", f"_{name}"), ("fish", f"{name}.fish")]:
                self.assertEqual(output_of(name, *words, shell).rstrip("\n"), text_of(file).rstrip("\n"))
            wrong = subprocess.run([program(name), *words, "tcsh"], capture_output=True, text=True)
            self.assertNotEqual(wrong.returncode, 0)
            self.assertIn('bash, zsh and fish, not for "tcsh"', wrong.stderr)

    def test_each_option_of_the_help_is_completed(self):
        for name in PROGRAMS:
            listed = set(re.search(r'local options="([^"]*)"', text_of(name))[1].replace("--", "").split())
            self.assertGreater(len(listed), 20)
            self.assertEqual(self.options_in_help(name) - listed, set(), name)


class ManualPages(OnTerminal):
    @needs("mandoc")
    def test_the_pages_are_well_formed(self):
        for name in PROGRAMS:
            command = ["mandoc", "-T", "lint", "-W", "warning", PLACE.texts / f"{name}.1"]
            lint = subprocess.run(command, capture_output=True, text=True)
            faults = [line for line in lint.stdout.splitlines() if "missing date" not in line]
            self.assertEqual(faults, [])

    @needs("mandoc")
    def test_a_page_names_each_option_and_command_with_its_explanation(self):
        for name in PROGRAMS:
            command = ["mandoc", "-T", "ascii", "-O", "width=200", PLACE.texts / f"{name}.1"]
            page = re.sub(".\x08", "", subprocess.check_output(command, text=True))
            for option in self.options_in_help(name):
                self.assertRegex(page, rf"(?m)^ +(?:-\w, )?--{option}\b")
        self.assertIn("tasks that are kept [10000]", page)
        self.assertIn("checks what works on this host", page)

    def test_the_pages_come_from_the_programs(self):
        for name in PROGRAMS:
            self.assertEqual(output_of(name, MANUAL[name]).rstrip("\n"), text_of(f"{name}.1").rstrip("\n"))


class Colours(OnTerminal):
    def fail_as_task(self):
        task = self.call("task.submit", "fail", ["no luck"])["result"]["id"]
        self.assertEqual(self.call("task.wait", task)["result"]["state"], "failed")

    def test_lists_and_errors_have_colours_on_a_terminal_only(self):
        self.fail_as_task()
        on_terminal = self.terminal(PLACE.client, "tasks")
        self.assertEqual(on_terminal.wait(), 0)
        self.assertRegex(on_terminal.text, r"\x1b\[1mID .*METHOD\x1b\[0m")
        self.assertIn("\x1b[31mfailed\x1b[0m", on_terminal.text)
        self.assertNotIn("\x1b", self.run_client("tasks").stdout)
        failed = self.terminal(PLACE.client, "call", "fail", "x")
        self.assertEqual(failed.wait(), 1)
        self.assertIn("\x1b[31mshared-tensor:\x1b[0m fail: Function failed", failed.text)

    def test_a_call_as_a_task_shows_the_id_on_a_terminal_only(self):
        shown = self.terminal(PLACE.client, "call", "add", "1", "2", "--task")
        self.assertEqual(shown.wait(), 0)
        self.assertRegex(shown.text, r"task \S+\r\n")
        self.assertEqual(self.run_client("call", "add", "1", "2", "--task").stderr, "")

    def test_colours_move_no_column(self):
        self.fail_as_task()
        coloured = self.terminal(PLACE.client, "tasks")
        coloured.wait()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured.text).replace("\r", "")
        self.assertEqual(plain, self.run_client("tasks").stdout)

    def test_no_color_and_a_dumb_terminal_have_none(self):
        for variables in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            terminal = self.terminal(PLACE.client, "tasks", **variables)
            self.assertEqual(terminal.wait(), 0)
            self.assertNotIn("\x1b", terminal.text)
        terminal = self.terminal(PLACE.client, "tasks", NO_COLOR="")  # empty: as if it were not there
        terminal.wait()
        self.assertIn("\x1b[1m", terminal.text)


class Top(OnTerminal):
    def top_once(self, *words):
        return self.run_client("top", "--once", "--timeout", "60s", *words)

    def top(self, *words):
        return self.terminal(PLACE.client, "top", "--timeout", "60s", *words)

    @contextlib.contextmanager
    def calls(self):
        """Calls `add` from another thread, at most 50 times a second."""
        over = threading.Event()

        def run():
            while not over.wait(0.02):
                self.call("add", 1, 2)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def test_once_shows_rates_latencies_queue_tasks_and_leases(self):
        self.call("task.submit", "sleep", [0.01])
        self.call("fail", "x")
        with self.calls():
            done = self.top_once("--interval", "1s", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        functions = {one["name"]: one for one in figures["totals"]["functions"]}
        self.assertGreater(functions["add"]["calls_per_second"], 5)
        self.assertLess(functions["add"]["calls_per_second"], 100)
        self.assertEqual(functions["fail"]["calls_per_second"], 0)
        self.assertGreaterEqual(functions["fail"]["failures"], 1)
        self.assertEqual(figures["totals"]["functions"][0]["name"], "add")  # the busiest first
        self.assertIn("p99", functions["add"]["compute_ms"])
        text = self.top_once("--interval", "200ms").stdout
        self.assertRegex(text, r"workers +0 of \d+ busy, queue 0 of 1024")
        self.assertRegex(text, r"tasks +\d+ pending, \d+ running, \d+ finished")
        self.assertRegex(text, r"memory +\d+ leases of ")
        self.assertRegex(text, r"FUNCTION +CALLS/S +CALLS +FAILED +P50 +P90 +P99 +MAX")
        self.assertRegex(text, r"(?m)^add +\d")
        self.assertNotIn("\x1b", text)

    def test_the_live_view_follows_calls_and_q_gives_the_terminal_back(self):
        top = self.top("--interval", "200ms")
        top.wait_for(r"CALLS/S")
        self.assertNotEqual(top.settings_now(), top.settings)  # keys come without Enter
        self.call("scale", [1.0], 2)
        top.wait_for(r"scale +")
        top.send("x")  # another key changes nothing
        start = len(top.text)
        top.wait_for(r"CALLS/S", start)
        top.send("q")
        self.assertEqual(top.wait(), 0)
        self.assertTrue(top.text.endswith("\x1b[?25h\x1b[?1049l"), top.text[-80:])
        self.assertEqual(top.settings_now(), top.settings)

    def test_control_c_and_signals_give_the_terminal_back(self):
        ends = [("\x03", 0), ("\x04", 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
        for end, code in ends:
            with self.subTest(end=end):
                top = self.top("--interval", "1h")
                top.wait_for(r"q ends")
                if isinstance(end, str):
                    top.send(end)
                else:
                    os.kill(top.pid, end)
                self.assertEqual(top.wait(), code)
                self.assertTrue(top.text.endswith("\x1b[?25h\x1b[?1049l"), top.text[-80:])
                self.assertEqual(top.settings_now(), top.settings)

    def test_a_picture_fits_into_its_window(self):
        top = self.top("--interval", "200ms")
        top.wait_for(r"q ends")
        start = len(top.text)
        top.resize(3, 20)
        end = time.monotonic() + PATIENCE
        lines = []
        while len(lines) != 3:  # a picture of the window as it was may still come
            self.assertLess(time.monotonic(), end, lines)
            picture = top.wait_for(r"(?s)\x1b\[H((?:(?!\x1b\[H).)*?)\x1b\[J", start)
            start += picture.end()
            lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", picture[1]).split("\r\n")
        self.assertLessEqual(max(map(len, lines)), 20)
        top.send("q")
        self.assertEqual(top.wait(), 0)

    def test_a_server_that_ends_is_shown_and_the_next_one_too(self):
        port = str(free_port())
        with Daemon(PLACE.daemon, "--load", PLACE.plugin, "--port", port) as first:
            top = self.top("--interval", "200ms", "--url", first.url)
            top.wait_for(r"q ends")
        top.wait_for(r"the server does not answer, trying again: ")
        with Daemon(PLACE.daemon, "--port", port):
            top.wait_for(r"q ends", len(top.text))
            top.send("q")
            self.assertEqual(top.wait(), 0)
        self.assertTrue(top.text.endswith("\x1b[?1049l"))

    def test_without_a_terminal_or_a_server_it_says_what_to_do(self):
        done = self.run_client("top")
        self.assertEqual(done.returncode, 2)
        self.assertIn("top needs a terminal; --once prints one picture", done.stderr)
        nowhere = self.terminal(PLACE.client, "top", SHARED_TENSOR_URL="http://127.0.0.1:1")
        self.assertEqual(nowhere.wait(), 3)
        self.assertNotIn("\x1b[?1049h", nowhere.text)


class Lists(OnTerminal):
    def test_models_are_listed(self):
        titles = ["NAME", "STATEFUL", "DEVICE", "SIZE", "SESSIONS", "LOADED", "FUNCTIONS"]
        self.assertEqual(self.run_client("models").stdout.split(), titles)
        self.assertEqual(json.loads(self.run_client("models", "--json").stdout), {"models": []})
        self.assertEqual(self.run_client("models", "--names").stdout, "\n")
        if not PLACE.model:
            self.skipTest("this build has no libtorch")
        with Daemon(PLACE.daemon, "--model", f"vad={PLACE.model}", "--libtorch", PLACE.libtorch) as daemon:
            listed = self.run_client("models", "--url", daemon.url).stdout.splitlines()
            self.assertRegex(listed[1], r"^vad +yes +cpu +[\d.]+ [KM]iB +0 +20\d\d-.* vad\.forward")
            self.assertEqual(self.run_client("models", "--names", "--url", daemon.url).stdout, "vad\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", type=pathlib.Path, required=True)
    parser.add_argument("--client", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, help="TorchScript file; without it models are not tested")
    parser.add_argument("--libtorch", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="folder of the manual pages and completions")
    PLACE, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
