"""TCP ports for tests in Python."""

import contextlib
import random
import socket


def free_port():
    """None that the kernel gives to others: it stays free until it is used, also in the pauses between two servers."""
    while True:
        port = random.randint(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
