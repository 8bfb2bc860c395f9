"""Functions shared as with shared-tensor 0.1: no type hints. The tests call them in a process of their own."""

import os
import threading

from shared_tensor import Context, SharedTensorProvider

provider = SharedTensorProvider()
gates = {}


def gate(name):
    return gates.setdefault(name, threading.Event())


@provider.share(name="add_numbers")
def add_numbers(a, b=1):
    """The sum."""
    return a + b


@provider.share()
def fail(text):
    raise ValueError(text)


@provider.share()
def open_gate(name):
    gate(name).set()


@provider.share()
def pass_gate(context: Context, name):
    """Ends when open_gate() is called, or when the call is cancelled."""
    context.progress(0.5, "waits")
    while not gate(name).wait(0.01):
        context.check_cancelled()
    return f"passed {name}"


class Model:
    def __init__(self, size):
        self.size = size


made = []


@provider.share(singleton=True)
def one_for_each_size(size=1, label="a"):
    made.append(size)
    return Model(size)


@provider.share(singleton_key_formatter="{size}")
def one_by_formatter(size=1, label="a"):
    return label


@provider.share()
def same(a, b):
    return a is b


@provider.share()
def times_made(size):
    return made.count(size)


@provider.share()
def kind(value):
    return type(value).__name__


@provider.share()
def kinds_with_hints(raw: bytes, pair: tuple[int, int], several: set):
    return [type(value).__name__ for value in (raw, pair, several)]


@provider.share()
def results():
    return [b"ab", (1, 2)]


@provider.share()
def environment(name):
    return os.environ.get(name, "")
