"""Providers as actors of Ray."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from ._directory import NAMESPACE, actors
from ._handle import Handle
from ._serving import Serving, get

if TYPE_CHECKING:
    from ..provider import SharedTensorProvider


class ReplicaServer:
    """An actor that serves the functions of a provider."""

    def __init__(self, provider: SharedTensorProvider, deployment: str, options: dict[str, Any]) -> None:
        provider.execution_mode = "server"
        name = f"replica-{ray.get_runtime_context().get_actor_id()[:28]}"
        self._serving = Serving(provider, name, options, deployment)
        self._serving.start()

    def ready(self) -> None:
        """Returns once the replica takes calls."""

    def stop(self, drain_time: float) -> None:
        """Takes no further calls, and waits for those in flight."""
        self._serving.stop(drain_time)


def _end(deployment: str, replicas: dict[str, Any], drain_time: float) -> None:
    """Ends these actors, by name. Blocks until Ray has ended them. Raises TimeoutError if it does not."""
    if not replicas:
        return
    stopped = [actor.stop.remote(drain_time) for actor in replicas.values()]
    ray.wait(stopped, num_returns=len(stopped), timeout=drain_time + 10)  # one may be dead or hang
    for actor in replicas.values():
        ray.kill(actor)
    ending = {actor._actor_id: name for name, actor in replicas.items()}
    deadline = time.monotonic() + 30
    while left := ending.keys() & {actor._actor_id for actor in actors(f"{deployment}#").values()}:
        if time.monotonic() > deadline:
            names = ", ".join(sorted(ending[one] for one in left))
            raise TimeoutError(f"Ray has not ended {names} within 30 s of ray.kill()")
        time.sleep(0.02)


@dataclass(frozen=True)
class Recipe:
    """How further replicas are made."""

    provider: SharedTensorProvider
    actor: dict[str, Any]
    serve: dict[str, Any]


def deploy(
    provider: SharedTensorProvider,
    replicas: int = 1,
    *,
    name: str = "",
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: dict[str, float] | None = None,
    detached: bool = False,
    actor_options: dict[str, Any] | None = None,
    **options: Any,
) -> Handle:
    """Serves a provider's functions in so many actors, and returns a handle that calls them. Blocks until all replicas
    take calls. They end with the last of the handles that this program made of this one by options(), or with the
    program.

    name: for handle(); default: the provider's name. num_cpus, num_gpus, resources: of each replica. detached: the
    replicas go on until delete() ends them. actor_options: other options for Ray's actors; by default
    they are spread over the nodes, and are started again if they crash or their node fails. options: of
    SharedTensorProvider.start(), `workers` for example. The provider must be a global variable of a module that the
    replicas can import, or of the main program, whose functions Ray then sends with what they use. Raises ValueError
    for a name that is in use."""
    name = name or provider.name
    if not name or "#" in name or name.startswith("node-"):
        raise ValueError(
            "deploy: give name='...', by which handles find the deployment; without '#', and not 'node-...'"
        )
    if actors(f"{name}#"):
        raise ValueError(f"deploy: there is a deployment {name!r}; shared_tensor.ray.delete({name!r}) ends it")
    actor: dict[str, Any] = {
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "resources": resources,
        "max_restarts": -1,
        "scheduling_strategy": "SPREAD",
        **({"lifetime": "detached"} if detached else {}),
        **(actor_options or {}),
    }
    made = Handle(name)
    made._replicas.recipe = Recipe(provider, actor, options)
    scale(made, replicas)
    return made


def scale(handle: Handle, replicas: int, *, drain_time: float = 10.0) -> None:
    """Starts or ends replicas until there are so many. `handle`: of deploy(). Blocks until the new ones take calls;
    those that end have `drain_time` seconds for calls in flight. Raises ValueError for a handle of another program, and
    what Ray raises."""
    if replicas < 0:
        raise ValueError(f"scale: replicas={replicas}: use 0 or more")
    recipe, kept = handle._replicas.recipe, handle._replicas.actors
    if recipe is None:
        raise ValueError(f"scale: {handle!r} was not made by deploy() in this program")
    alive = actors(f"{handle.name}#")
    for number in [number for number in kept if f"{handle.name}#{number}" not in alive]:
        del kept[number]  # it failed for good, or delete() has ended it
    surplus = sorted(kept)[replicas:]
    _end(handle.name, {f"{handle.name}#{number}": kept[number] for number in surplus}, drain_time)
    for number in surplus:
        del kept[number]
    free = (number for number in itertools.count() if number not in kept)
    new = list(itertools.islice(free, max(replicas - len(kept), 0)))
    server = ray.remote(ReplicaServer)
    for number in new:
        options = {**recipe.actor, "name": f"{handle.name}#{number}", "namespace": NAMESPACE}
        kept[number] = server.options(**options).remote(recipe.provider, handle.name, recipe.serve)
    try:
        for number in new:
            get(kept[number].ready.remote(), timeout=None)
    except BaseException:
        _end(handle.name, {f"{handle.name}#{number}": kept.pop(number) for number in new}, 0)
        raise
    handle._replicas.refresh(wait=60)


def delete(name: str, *, drain_time: float = 10.0) -> bool:
    """Ends the replicas of a deployment, whichever program made it. Blocks until the name is free for another
    deployment: calls in flight have `drain_time` seconds. Returns False if there are none, and raises TimeoutError if
    Ray does not end them."""
    found = actors(f"{name}#")
    _end(name, found, drain_time)
    return bool(found)
