"""python -m shared_tensor.server package.module:provider --port 2537: serves a provider that a module defines."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from ._first.ranks import Ranks
from ._first.server import SharedTensorServer
from .provider import SharedTensorProvider


def load(target: str) -> SharedTensorProvider:
    """Imports "package.module:name". The name may be omitted if the module has one provider."""
    module_name, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(module_name)
    if name:
        found = [getattr(module, name)]
    else:
        found = [value for value in vars(module).values() if isinstance(value, SharedTensorProvider)]
    if len(found) != 1 or not isinstance(found[0], SharedTensorProvider):
        sys.exit(f"shared_tensor.server: {target} is no SharedTensorProvider: name it as package.module:provider")
    return found[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shared_tensor.server", description=__doc__)
    parser.add_argument(
        "provider",
        nargs="?",
        help="package.module:name of the SharedTensorProvider; nothing that a caller names is imported",
    )
    parser.add_argument("--host", default="127.0.0.1", help="beyond loopback only with --token-file or --insecure")
    parser.add_argument("--port", type=int, help="0: any free port; default: 2537 plus RANK")
    parser.add_argument("--unix-socket", default="", help="path of a Unix socket to listen on as well")
    parser.add_argument("--token-file", default="", help="lines NAME:SECRET; mode 0600")
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without tokens")
    parser.add_argument("--ready-file", default="", help="file that gets the URL once the server is ready")
    parser.add_argument("--workers", type=int, default=0, help="threads that run functions; 0: at least 4")
    parser.add_argument("--processes", type=int, default=0, help="worker processes that run functions; 0: none")
    options = parser.parse_args(arguments)
    if options.provider is None:
        parser.error("say whose functions to serve: python -m shared_tensor.server package.module:provider ...")
    count = int(os.environ.get("GPUS_PER_NODE", "1"))
    if count > 1 and "RANK" not in os.environ:
        return Ranks(count, sys.argv[1:] if arguments is None else arguments, options).run()
    os.environ["__SHARED_TENSOR_SERVER_MODE__"] = "true"
    provider = load(options.provider)
    ended = provider.serve(
        options.port,
        options.host,
        unix_socket=options.unix_socket,
        token_file=options.token_file,
        insecure=options.insecure,
        workers=options.workers,
        processes=options.processes,
        ready_file=options.ready_file,
    )
    return 0 if ended else 1


__all__ = ["SharedTensorServer", "load", "main"]

if __name__ == "__main__":
    sys.exit(main())
