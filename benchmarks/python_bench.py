"""Measures the Python package beside its peers, all in one run.

    pip install build/python/dist/shared_tensor-*.whl numpy
    python benchmarks/python_bench.py [--only small | throughput | tensors | weights] [--where one | all]
        [--plugin libexample_plugin.so] [--cpp-caller build/release/benchmarks/shared_tensor_cpp_caller]

The peers (python_bench_peers.py) have environments of their own, beside the dependencies (`--environments`). They are
installed once, and take 1 GB in addition to the environment of the tests with torch. For each peer that cannot run, the
reason is printed. The rows of a group are measured by turns, so that what else the machine does hits all of them alike:
compare rows of one run. The rows of the C++ client need the plugin (a function `add`) and the program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy

import shared_tensor

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests/support"), str(HERE.parent / "tests/python")]

from environments import Environment, install  # noqa: E402
from run import FRAMEWORKS  # noqa: E402

FLOATS = 1 << 24  # 64 MiB
ROUNDS = 20
CALLERS = 8
PACKAGES = {
    "grpc": ["grpcio", "numpy"],
    "fastapi": ["fastapi", "uvicorn", "httpx", "numpy"],
    "flight": ["pyarrow", "numpy"],
    "ray": ["ray", "numpy"],
}
FIRST = ["shared-tensor==0.1.2", "requests"]  # beside torch in the environment of the tests
NAMES = {
    "grpc": "gRPC Python",
    "fastapi": "FastAPI, uvicorn, httpx",
    "flight": "Arrow Flight (pyarrow)",
    "ray": "Ray",
    "first": "shared-tensor 0.1.2 of PyPI",
    "torch": "torch.multiprocessing SimpleQueue (no errors, no deadlines)",
}
WITHOUT_DEADLINES = {"torch"}

provider = shared_tensor.SharedTensorProvider(execution_mode="server")
held: numpy.ndarray | None = None


@provider.share()
def add(a: float, b: float) -> float:
    return a + b


@provider.share()
def held_tensor(context: shared_tensor.Context) -> numpy.ndarray:
    """Returns a tensor that this process keeps in shared memory."""
    global held
    if held is None:
        held = context.empty([FLOATS], framework="numpy")
        held[:] = 1
    return held


@provider.share()
def fresh_tensor() -> numpy.ndarray:
    return numpy.ones(FLOATS, numpy.float32)


# ---- servers and callers in processes of their own


@contextlib.contextmanager
def process(command: list[str], ready: str = "ready") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields a process, and the rest of the line with which it said that it is ready; ready="": it says nothing."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "RAY_AUTH_MODE": "disabled"}
    with tempfile.TemporaryFile("w+") as errors:
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment, start_new_session=True
        )
        try:
            assert started.stdout is not None
            line = next((line for line in started.stdout if ready in line), None) if ready else ""
            if line is None:
                errors.seek(0)
                raise RuntimeError((errors.read().strip().splitlines() or ["ended without a word"])[-1])
            yield started, line[line.find(ready) + len(ready) :].strip()
        finally:
            started.terminate()
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)  # those that it started


class Failed(Exception):
    pass


class Caller:
    """A process that makes calls when it is told to."""

    def __init__(self, started: subprocess.Popen[str]) -> None:
        self._process = started

    def begin(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> float:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer or answer.startswith("failed"):
            raise Failed(answer or "the caller ended")
        return float(answer)

    def ask(self, line: str) -> float:
        self.begin(line)
        return self.end()


class Contestant:
    """A library: its server runs while this lives."""

    def __init__(self, python: str, name: str, address: str) -> None:
        self._python, self._name, self._address = python, name, address

    @contextlib.contextmanager
    def caller(self) -> Iterator[Caller]:
        command = [self._python, str(HERE / "python_bench_peers.py"), "call", self._name, self._address]
        with process(command) as (started, _):
            yield Caller(started)

    def count(self, operation: str, seconds: float) -> float:
        """Calls a second of CALLERS processes."""
        with contextlib.ExitStack() as stack:
            own = self._name == "torch"  # its caller starts them itself
            callers = [stack.enter_context(self.caller()) for _ in range(1 if own else CALLERS)]
            for caller in callers:
                caller.begin(f"count {operation} {seconds}")
            return sum(caller.end() for caller in callers) / seconds


@contextlib.contextmanager
def peer(python: str, name: str) -> Iterator[Contestant]:
    if name == "torch":  # its callers start the server, because queues are inherited
        yield Contestant(python, name, str(CALLERS))
        return
    with process([python, str(HERE / "python_bench_peers.py"), "serve", name]) as (_, address):
        yield Contestant(python, name, address)


@contextlib.contextmanager
def ours(plugin: str | None) -> Iterator[tuple[Contestant, str, str]]:
    """shared_tensor, with the urls of a daemon and of a provider."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        daemon, ready = f"unix:{folder}/daemon", os.path.join(folder, "url")
        program = os.path.join(os.path.dirname(shared_tensor.__file__), "bin/shared-tensor-server")
        load = ["--load", plugin] if plugin else []
        command = [program, "--port", "0", "--unix-socket", f"{folder}/daemon", *load]
        stack.enter_context(process(command, ready=""))
        shared_tensor.Client(daemon, wait_for_server=30).ping()
        command = [sys.executable, "-m", "shared_tensor.server", f"{pathlib.Path(__file__).stem}:provider"]
        command += ["--port", "0", "--ready-file"]
        stack.enter_context(process([*command, ready], ready="functions at"))
        stack.enter_context(process([*command, f"{ready}.passing", "--processes", "1"], ready="functions at"))
        provider, passing = (pathlib.Path(path).read_text() for path in (ready, f"{ready}.passing"))
        yield Contestant(sys.executable, "ours", f"{daemon} {provider} {passing}"), daemon, provider


def interpreters(kept_in: pathlib.Path, folder: str) -> dict[str, str]:
    """The Python of each peer. Of those that cannot be installed, the reason is printed."""
    found = {}
    for name in NAMES:
        try:
            if name in PACKAGES:
                found[name] = str(Environment(kept_in, f"bench-{name}", PACKAGES[name]).python)
                continue
            torch = Environment(kept_in, "python-torch", FRAMEWORKS["python-torch"])
            found[name] = str(torch.python)
            if name == "first":
                python = torch.layer(pathlib.Path(folder) / "first")
                install(python, "--no-deps", FIRST[0])
                install(python, FIRST[1])
                found[name] = str(python)
        except AssertionError as error:
            print(f"without {NAMES[name]}: it does not install: {str(error).splitlines()[-1]}")
    return found


# ---- measuring


def by_turns(rows: dict[str, Callable[[], float]], slices: int) -> dict[str, float]:
    """The median of each row's figure. A row that fails is named, and left out."""
    seen: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(slices):
        for name in list(seen):
            try:
                seen[name].append(rows[name]())
            except Failed as failed:
                del seen[name]
                print(f"  {name}: {failed}")
    return {name: statistics.median(figures) for name, figures in seen.items()}


def show(title: str, figures: dict[str, float], unit: str = "us") -> None:
    print(f"\n{title}")
    for name, figure in figures.items():
        print(f"  {figure:14,.1f} {unit}  {name}", flush=True)


def target(text: str, figures: dict[str, float], ours: str, theirs: str, bound: float, inverse: bool = False) -> None:
    if ours in figures and theirs in figures:
        value = figures[theirs] / figures[ours] if inverse else figures[ours] / figures[theirs]
        print(f"  {'reached' if value <= bound else 'missed'}: {text}: {value:.3f} (at most {bound})", flush=True)


def ahead(figures: dict[str, float], row: str, inverse: bool = False) -> None:
    """Whether our row is ahead of each peer that offers calls with errors and deadlines."""
    for name, title in NAMES.items():
        if name not in WITHOUT_DEADLINES:
            target(f"ahead of {title}", figures, row, title, 1.0, inverse)


def pinned(core: bool) -> None:
    os.sched_setaffinity(0, {0} if core else set(range(os.cpu_count() or 1)))


class Run:
    """The contestants of one placement, and the groups that measure them."""

    def __init__(self, stack: contextlib.ExitStack, options: argparse.Namespace, pythons: dict[str, str]) -> None:
        self._stack, self._options = stack, options
        self._ours, self._daemon, self._provider = stack.enter_context(ours(options.plugin))
        self._peers: dict[str, Contestant] = {}
        for name, python in pythons.items():
            try:
                self._peers[NAMES[name]] = stack.enter_context(peer(python, name))
            except RuntimeError as error:
                print(f"without {NAMES[name]}: {error}")

    def _callers(self) -> tuple[Caller, dict[str, Caller]]:
        theirs = {}
        for name, contestant in self._peers.items():
            try:
                theirs[name] = self._stack.enter_context(contestant.caller())
            except RuntimeError as error:
                print(f"without {name}: {error}")
        return self._stack.enter_context(self._ours.caller()), theirs

    def _cpp(self, url: str) -> Caller:
        started, _ = self._stack.enter_context(process([self._options.cpp_caller, url]))
        return Caller(started)

    def small(self) -> None:
        mine, theirs = self._callers()
        cpp_ping, python_ping = "C++ client, a method of the server", "Python client, the same method"
        cpp_python = "C++ client, Python function"
        cpp, python = "Python client, C++ function", "Python client, Python function"
        rows: dict[str, Callable[[], float]] = {}
        if self._options.cpp_caller:
            daemon, provider = self._cpp(self._daemon), self._cpp(self._provider)
            rows = {cpp_ping: lambda: daemon.ask("ping"), cpp_python: lambda: provider.ask("add")}
        rows[python_ping] = lambda: mine.ask("ping")
        if self._options.plugin:
            rows[cpp] = lambda: mine.ask("cpp_add")
        rows[python] = lambda: mine.ask("add")
        rows["Python client, Python function in a worker process"] = lambda: mine.ask("worker_add")
        rows |= {name: lambda caller=caller: caller.ask("add") for name, caller in theirs.items()}
        figures = by_turns(rows, ROUNDS)
        show("a small call", figures)
        target("Python client beside the C++ client", figures, python_ping, cpp_ping, 1.5)
        target("the same, of a Python function", figures, python, cpp_python, 1.5)
        target("Python function beside the C++ function", figures, python, cpp, 2.0)
        ahead(figures, python)

    def throughput(self) -> None:
        row = "shared_tensor, Python function"
        rows = {
            row: lambda: self._ours.count("add", 2.0),
            "shared_tensor, a method of the server in C++": lambda: self._ours.count("ping", 2.0),
        }
        rows |= {name: lambda one=one: one.count("add", 2.0) for name, one in self._peers.items()}
        figures = by_turns(rows, 3)
        show(f"calls a second of {CALLERS} client processes", figures, "calls/s")
        ahead(figures, row, inverse=True)

    def tensors(self) -> None:
        mine, theirs = self._callers()
        python, cpp = "shared_tensor, NumPy", "shared_tensor, C++ client"
        cpp_rows: dict[str, Callable[[], float]] = {}
        for operation, title in [("held", "that the other process holds"), ("fresh", "that the function makes")]:
            if self._options.cpp_caller:
                caller = self._cpp(self._provider)
                cpp_rows = {cpp: lambda caller=caller, operation=operation: caller.ask(f"{operation}_tensor")}
            rows = {**cpp_rows, python: lambda operation=operation: mine.ask(operation)}
            if operation == "held":
                rows["shared_tensor, without a framework"] = lambda: mine.ask("held_plain")
                rows["shared_tensor, from a worker process"] = lambda: mine.ask("worker_held")
            rows |= {name: lambda c=c, operation=operation: c.ask(operation) for name, c in theirs.items()}
            figures = by_turns(rows, 7)
            show(f"a tensor of 64 MiB {title}, and its first element", figures)
            if operation == "held":
                target("Python client beside the C++ client", figures, python, cpp, 1.5)
            ahead(figures, python)


Times = list[tuple[float, float]]  # of each version: to publish it, and to attach it


def weights(options: argparse.Namespace, pythons: dict[str, str]) -> None:
    """One contestant after the other, because the memory does not hold all of them; two rounds. The first version lies
    in memory that the server has not used before; from the third version on a server can reuse the memory of older
    versions."""
    row = "shared_tensor"
    costs: dict[str, list[float]] = {}
    rounds: dict[str, list[Times]] = {title: [] for title in [row, *(NAMES[name] for name in pythons)]}
    for _ in range(2):
        with ours(None) as (contestant, *_):
            rounds[row].append(versions(contestant, own=False))
            for group in COSTS:
                for name, times in by_turns_in_one_process(contestant, group).items():
                    costs.setdefault(name, []).extend(times)
        for name, python in pythons.items():
            before = rounds[NAMES[name]]
            if any(published + attached > 20e6 for times in before for published, attached in times):
                continue  # once is enough
            try:
                with peer(python, name) as contestant:
                    before.append(versions(contestant, own=name == "torch"))
            except (RuntimeError, Failed) as error:
                print(f"  {NAMES[name]}: {error}")
    for which, part in [("the first version", slice(1)), ("the third to fifth version", slice(2, None))]:
        for number, title in enumerate(["published", "attached by another process, and the first element of each"]):
            figures = {
                name: statistics.median(seen) / 1e3
                for name, several in rounds.items()
                if (seen := [times[number] for one in several for times in one[part]])
            }
            show(f"64 arrays of 16 MiB, {which}: {title}", figures, "ms")
            ahead(figures, row)
    figures = {name: statistics.median(times) / 1e3 for name, times in costs.items()}
    show("the same arrays, beside what one copy costs", figures, "ms")
    target("published, beside one copy into fresh memory", figures, "publish", "copy", 1.3)
    target("published by a Node in its own server", figures, "node", "copy", 1.3)
    target("published over TCP, as from another host", figures, "push", "copy", 1.3)
    target("a file published, beside reading it into fresh memory", figures, "file", "read", 1.2)


# Operations of our callers: python_bench_peers.py. Few at a time: pages that this machine has not used before are dear.
COSTS = [["publish", "push", "copy", "born"], ["node", "copy"], ["file", "read"]]


def by_turns_in_one_process(contestant: Contestant, operations: list[str]) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        caller = stack.enter_context(contestant.caller())
        seen: dict[str, list[float]] = {name: [] for name in operations}
        for _ in range(5):
            for name in operations:
                caller.ask(f"prepare {name}")
                seen[name].append(caller.ask(f"once {name}"))
        return seen


def versions(contestant: Contestant, own: bool) -> Times:
    """own: the caller that attaches asks its server to publish."""
    with contextlib.ExitStack() as stack:
        publisher = stack.enter_context(contestant.caller())
        reader = publisher if own else stack.enter_context(contestant.caller())
        publisher.ask("prepare publish")
        times: Times = []
        while len(times) < 5 and (not times or sum(times[-1]) < 20e6):
            times.append((publisher.ask("once publish"), reader.ask("once attach")))
        return times


GROUPS = ["small", "throughput", "tensors", "weights"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS)
    parser.add_argument("--where", choices=["one", "all"], help="client and server on one core, or on all")
    parser.add_argument("--peers", help="some of: " + ", ".join(NAMES))
    parser.add_argument("--plugin", help="a plugin with a function add(a, b)")
    parser.add_argument("--cpp-caller", help="the program shared_tensor_cpp_caller")
    parser.add_argument("--environments", type=pathlib.Path, help="folder; default: beside the dependencies")
    options = parser.parse_args()
    if options.environments is None:
        folder = subprocess.check_output([HERE.parent / "scripts/fetch_deps", "--print-dir"], text=True)
        options.environments = pathlib.Path(folder.strip()) / "environments"
    wanted = [options.only] if options.only else GROUPS
    with tempfile.TemporaryDirectory() as folder:
        pythons = interpreters(options.environments, folder)
        if options.peers is not None:
            pythons = {name: python for name, python in pythons.items() if name in options.peers.split(",")}
        for core in (True, False):
            if options.where not in (None, "one" if core else "all"):
                continue
            pinned(core)
            print("\n== one core" if core else "\n== all cores", flush=True)
            os.environ["BENCH_RAY_STORE"] = str(1 << 29)
            for group in ("small", "throughput", "tensors"):
                if group in wanted and not (core and group == "throughput"):
                    with contextlib.ExitStack() as stack:
                        getattr(Run(stack, options, pythons), group)()
            if "weights" in wanted and not core:
                os.environ["BENCH_RAY_STORE"] = str(5 << 29)
                weights(options, pythons)


if __name__ == "__main__":
    main()
