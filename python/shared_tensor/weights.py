"""Models of torch on published weights.

    attached = attach(model, "weights")  # the parameters are the published tensors, without a copy
    attached.watch()                     # from now on each new version is swapped in, between two calls of the model

Needs torch 2.1 or newer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from .client import Client
from .errors import RpcError, UnknownOrExpired
from .named_tensors import NamedTensor, NamedTensors


def _bind(model: Any, weights: Mapping[str, Any], strict: bool) -> None:
    """Makes the model's parameters and buffers views of `weights`. Raises before the first one is changed."""
    own = model.state_dict(keep_vars=True)
    missing, unexpected = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if strict and (missing or unexpected):
        raise KeyError(
            f"the weights do not fit the model: {len(missing)} missing {missing[:3]}, "
            f"{len(unexpected)} unexpected {unexpected[:3]}; strict=False binds what fits"
        )
    common = own.keys() & weights.keys()
    for name in common:
        if own[name].shape != weights[name].shape:
            raise ValueError(
                f"{name}: the model has the shape {tuple(own[name].shape)}, the weights {tuple(weights[name].shape)}"
            )
    if any(own[name].is_meta for name in common):
        model.load_state_dict({name: weights[name] for name in common}, strict=False, assign=True)
        return
    for name in common:
        own[name].data = weights[name]


class _Gate:
    """A model's forward(). Lets any number of calls run, or one swap of the weights. Not hooks of torch: they are not
    run after KeyboardInterrupt."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.__wrapped__ = forward  # gives its signature to inspect
        self._changed = threading.Condition()
        self._running = 0
        self._swaps = 0
        self._thread = threading.local()

    def _is_inside(self) -> bool:
        return getattr(self._thread, "is_inside", False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_inside():  # a model may call itself
            return self.__wrapped__(*args, **kwargs)
        is_counted = False
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._swaps == 0)
                self._running += 1
                is_counted = self._thread.is_inside = True
            return self.__wrapped__(*args, **kwargs)
        finally:
            if is_counted:
                self._thread.is_inside = False
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def __reduce__(self) -> Any:
        return _Gate, (self.__wrapped__,)  # a copy of the model has a gate of its own

    def swap(self, work: Callable[[], None]) -> None:
        if self._is_inside():
            raise RuntimeError("weights cannot be swapped inside a call of their model")
        with self._changed:
            self._swaps += 1
            try:
                self._changed.wait_for(lambda: self._running == 0)
                work()
            finally:
                self._swaps -= 1
                self._changed.notify_all()


class Attached:
    """A model whose parameters are published tensors. `update()` and `watch()` change them between two calls. Made by
    attach(). Any thread may use it; `with` detaches it. `error`: why the last new version was not taken; None if the
    model has the newest that is known."""

    def __init__(self, model: Any, name: str, names: NamedTensors, strict: bool) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]

        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
            raise RuntimeError(f"attach() needs torch 2.1 or newer, and this is {torch.__version__}")
        self._model, self._name, self._names, self._strict = model, name, names, strict
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._weights = names.get(name)
        _bind(model, self._weights, strict)
        self._forward = vars(model).get("forward")  # None: the model has none of its own, only its class
        self._gate = model.forward = _Gate(model.forward)
        self.error: Exception | None = None

    @property
    def version(self) -> int:
        """The version that the model has."""
        return self._weights.version

    @property
    def weights(self) -> NamedTensor:
        """The published tensors that the model has."""
        return self._weights

    def update(self) -> bool:
        """Takes the newest version. Blocks until calls of the model that run have ended. Returns False if there is no
        newer one. Raises what attach() raises, and RuntimeError inside a call of the model; then the model keeps its
        weights."""
        weights = self._names.get(self._name, previous=self._weights)
        if weights.version == self.version:
            return False
        dict(weights)  # all tensors are made before calls have to wait

        def swap() -> None:
            _bind(self._model, weights, self._strict)
            self._weights = weights

        self._gate.swap(swap)
        return True

    def watch(self) -> None:
        """Takes each new version from now on, in a thread of its own, until detach(). A version that does not fit the
        model is left out, and a failed call is repeated every second: see `error`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="shared_tensor weights", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        seen, newer = self.version, None
        while not self._stop.is_set():
            try:
                newer = self._names.watch(self._name, seen, timeout=1.0)
                if newer is None:
                    continue
                self.update()
                seen, self.error = newer, None
            except UnknownOrExpired as error:  # the name was removed: it may come back
                self.error, seen = error, 0
                self._stop.wait(0.1)
            except (RpcError, RuntimeError, MemoryError) as error:  # may pass: the same version is tried again
                self.error = error
                self._stop.wait(1.0)
            except Exception as error:  # this version does not fit
                self.error, seen = error, newer or seen
                self._stop.wait(1.0)

    def detach(self) -> None:
        """Ends watch(): blocks until its thread has ended, about a second. The model keeps its weights."""
        self._stop.set()
        if vars(self._model).get("forward") is self._gate:
            del self._model.forward
            if self._forward is not None:
                self._model.forward = self._forward
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"<Attached {type(self._model).__name__} to {self._name} version {self.version}>"


def attach(model: Any, name: str, *, client: Client | None = None, strict: bool = True) -> Attached:
    """Binds the parameters and buffers of a torch module to the published set `name`, without a copy: all processes of
    a host that attach it share the memory. A process that changes a parameter gets its own copy of the changed pages.

    strict: the names must be those of model.state_dict(); else only the common ones are bound. A model on the device
    "meta" (`with torch.device("meta")`) needs no memory before. Needs torch 2.1 or newer. Raises UnknownOrExpired if
    nothing is published, KeyError or ValueError if names or shapes do not fit. The model takes the dtypes of the set.
    """
    names = NamedTensors((client or Client(timeout=None)).options(framework="torch"))
    return Attached(model, name, names, strict)


__all__ = ["Attached", "attach"]
