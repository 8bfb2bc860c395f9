"""Functions of one module, called from another process.

    python -m shared_tensor.server simple_functions:provider     # the server, on port 2537
    python simple_functions.py                                   # the client

Both processes import this file. The decorated functions run in the server; in the client they call the server.
"""

import os
import sys

from shared_tensor.client import SharedTensorClient
from shared_tensor.provider import SharedTensorProvider

provider = SharedTensorProvider()


@provider.share(name="add_numbers")
def add_numbers(a, b):
    """The sum of two numbers."""
    return a + b


@provider.share()
def statistics(numbers, digits=2):
    """Mean, smallest and largest of a list of numbers."""
    mean = sum(numbers) / len(numbers)
    return {"mean": round(mean, digits), "range": [min(numbers), max(numbers)]}


@provider.share()
def process_id():
    return os.getpid()


def main(port=2537):
    print("10 + 20 =", add_numbers(10, 20))
    print("statistics:", statistics([1, 2, 4], digits=1))
    print("in another process:", process_id() != os.getpid())

    with SharedTensorClient(server_port=port) as client:
        print("10 + 20 =", client.call_function("add_numbers", [10, 20]))
        print("statistics:", client.call_function("statistics", [[1, 2, 4]], {"digits": 1}))
        for name, text in client.list_functions().items():
            print(f"{name}: {text}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
