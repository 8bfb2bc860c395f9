"""python -m shared_tensor.server package.module:provider --port 2537: serves a provider that a module defines."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from ._first.ranks import Ranks, end_with_parent
from ._first.server import SharedTensorServer
from ._flags import add_flags, parse
from .provider import SharedTensorProvider


def load(target: str) -> SharedTensorProvider:
    """Imports "package.module:name". The name may be omitted if the module has one provider."""
    module_name, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # what the module itself imports
        sys.exit(f"shared_tensor.server: there is no module {error.name} in {os.getcwd()} or on Python's path")
    if name:
        found = [getattr(module, name, None)]
    else:
        found = [value for value in vars(module).values() if isinstance(value, SharedTensorProvider)]
    if len(found) != 1 or not isinstance(found[0], SharedTensorProvider):
        sys.exit(f"shared_tensor.server: {target} is no SharedTensorProvider: name it as package.module:provider")
    return found[0]


def _fill_standard_descriptors() -> None:
    """A file or socket must not get the number of a closed one, and with it what is printed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)


def main(arguments: list[str] | None = None) -> int:
    _fill_standard_descriptors()
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m shared_tensor.server",
        usage="%(prog)s package.module:provider [OPTION...]",
        description=__doc__,
        epilog="The options are those of docs/options.md. An option may also come from the environment: "
        "SHARED_TENSOR_UNIX_SOCKET for --unix-socket. Times: 500ms, 30s, 5m, 1h. Sizes: 65536, 64K, 2G.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "provider",
        nargs="?",
        help="package.module:name of the SharedTensorProvider; nothing that a caller names is imported",
    )
    parser.add_argument("--ready-file", default="", help="file that gets the URL once the server is ready")
    parser.add_argument("--processes", type=int, default=0, help="worker processes that run functions; 0: none")
    add_flags(parser, arguments)
    options, of_server = parse(parser, arguments)
    if options.provider is None:
        parser.error("say whose functions to serve: python -m shared_tensor.server package.module:provider ...")
    count = int(os.environ.get("GPUS_PER_NODE", "1"))
    if count > 1 and "RANK" not in os.environ:
        return Ranks(count, arguments, of_server.get("port"), options.ready_file).run()
    end_with_parent()
    os.environ["__SHARED_TENSOR_SERVER_MODE__"] = "true"
    provider = load(options.provider)
    try:
        ended = provider.serve(ready_file=options.ready_file, processes=options.processes, **of_server)
    except (RuntimeError, ValueError) as error:  # a port that is taken, or an option that cannot be used
        sys.exit(f"shared_tensor.server: {error}")
    if not ended:  # Python's own end would wait for the functions that still run
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    return 0


__all__ = ["SharedTensorServer", "load", "main"]

if __name__ == "__main__":
    sys.exit(main())
