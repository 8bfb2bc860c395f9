"""A worker process of a provider. It imports the module that made the provider, as the "spawn" processes of
multiprocessing do, and runs the calls that the serving process passes on."""

from __future__ import annotations

import atexit
import importlib
import json
import multiprocessing.spawn
import os
import select
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import _core
from . import provider as provider_module

if TYPE_CHECKING:
    from .provider import SharedTensorProvider


_CONTROL = 3  # the descriptor of the socket to the serving process (worker_process.hpp)


def command(provider: SharedTensorProvider, options: list[tuple[str, str]]) -> list[str]:
    """The command of a worker process whose server has these options. Raises ValueError if another process cannot find
    the provider."""
    place = place_of(provider)
    if place is None:
        raise ValueError(
            "processes: the provider must be a global variable of a module, so that worker processes find it"
        )
    module, name = place
    preparation = multiprocessing.spawn.get_preparation_data(f"worker of {name}")
    main = sys.modules["__main__"]
    if module == "__main__" and not {"init_main_from_name", "init_main_from_path"} & set(preparation):
        raise ValueError(
            f"processes: {getattr(main, '__file__', 'this program')} is no file that a worker process can import: "
            "put the provider and its functions into a module"
        )
    kept = ("name", "sys_path", "sys_argv", "orig_dir", "dir", "init_main_from_name", "init_main_from_path")
    description = {
        "module": module,
        "name": name,
        "options": options,
        "preparation": {key: preparation[key] for key in kept if key in preparation},
    }
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return [sys.executable, *flags, "-m", "shared_tensor._worker", json.dumps(description)]


def place_of(provider: SharedTensorProvider) -> tuple[str, str] | None:
    """The module and the name in it of a global variable; the main module only if there is no other."""
    found = [
        (module_name, name)
        for module_name, module in list(sys.modules.items())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is provider and module_name != "__mp_main__"
    ]
    found.sort(key=lambda place: place[0] == "__main__")
    return found[0] if found else None


def main(description: dict[str, Any]) -> None:
    os.environ.pop("SHARED_TENSOR_WORKER_SOCKET", None)  # the C++ library has read it; own children are no workers
    serving = threading.Event()
    threading.Thread(target=_end_with_parent, args=(serving,), daemon=True).start()
    provider_module._imported_by_worker = True
    multiprocessing.spawn.prepare(description["preparation"])
    provider = getattr(importlib.import_module(description["module"]), description["name"])
    provider_module._imported_by_worker = False
    provider.execution_mode = "server"
    serving.set()
    _core.serve_as_worker(
        list(provider._registered_functions.values()), [(option, value) for option, value in description["options"]]
    )


def _end_with_parent(serving: threading.Event) -> None:
    """Ends a process that still imports when the serving process has ended, or does not want it any more."""
    select.select([_CONTROL], [], [])
    if not serving.is_set():
        os._exit(1)


if __name__ == "__main__":
    if not _core.is_worker_process():
        sys.exit("shared_tensor._worker: started by provider.serve(processes=...) only")
    main(json.loads(sys.argv[1]))
    # Not the usual end: it waits for threads of the functions.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
