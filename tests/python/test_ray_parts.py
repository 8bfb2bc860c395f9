"""Parts of the integration with Ray, without a cluster."""

from __future__ import annotations

import io
import os
import pathlib
import socket
import tempfile
import time

import pytest

from shared_tensor import errors

pytest.importorskip("ray")

import shared_tensor.ray as fleet
from shared_tensor.ray import _metrics
from shared_tensor.ray._directory import Directory, Place, Report
from shared_tensor.ray._serving import _path, _sweep

KINDS = "sock", "sock.local", "token"

# ---- servers


def test_what_killed_processes_left_is_removed(tmp_path: pathlib.Path) -> None:
    for name in ("node-dead", "replica-new", "replica-alive", "objects-dead", "other-dead"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / f"{name}.sock"))
        os.symlink("/nowhere/41000.sock", tmp_path / f"{name}.sock.local")
        (tmp_path / f"{name}.token").write_text("ray:secret:admin")
        for kind in KINDS:
            if name != "replica-new":
                os.utime(tmp_path / f"{name}.{kind}", (0, 0), follow_symlinks=False)
    os.unlink(tmp_path / "replica-alive.sock")
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(tmp_path / "replica-alive.sock"))
        alive.listen()
        os.utime(tmp_path / "replica-alive.sock", (0, 0))
        _sweep(str(tmp_path))
    left = {f"{name}.{kind}" for name in ("other-dead", "replica-alive", "replica-new") for kind in KINDS}
    assert {file.name for file in tmp_path.iterdir()} == left


def test_a_folder_that_others_could_change_is_rejected(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = pathlib.Path(_path("node-1")).parent
    assert _path("node-1") == f"{folder}/node-1" and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="only you can change"):
        _path("node-1")
    folder.rename(tmp_path / "other")
    (tmp_path / "other").chmod(0o700)
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(PermissionError, match="only you can change"):
        _path("node-1")


def test_metrics_that_disappear_become_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client")
    shown: dict[tuple[str, str], float] = {}

    class Gauge:
        def __init__(self, name: str, tag_keys: tuple[str, ...]) -> None:
            self.name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            shown[self.name, str(tags)] = value

    monkeypatch.setattr(_metrics, "Gauge", Gauge)
    metrics = _metrics.Metrics(Place("a", "a", "http://127.0.0.1", ""), "token", "", "node")
    head = "# TYPE bytes gauge\n"
    for text in (f'{head}bytes{{kind="a"}} 1\nbytes{{kind="b"}} 2\n', f'{head}bytes{{kind="b"}} 3\n'):
        monkeypatch.setattr(metrics, "_open", lambda *_, text=text, **__: io.BytesIO(text.encode()))
        metrics._show()
    assert list(shown.values()) == [0, 3]


# ---- the directory


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_directory_forgets_servers_that_do_not_report() -> None:
    import asyncio

    async def steps() -> None:
        clock = Clock()
        directory = Directory("token", False, clock)
        places = [Place(name, name, "", "") for name in "ab"]
        version, _ = await directory.reserve("w", None, "a")
        await directory.report(Report(places[0], held={"w": version}), None)
        await directory.report(Report(places[1], held={"w": 0}), None)
        assert await directory.find("w") == (1, [places[0]])
        clock.now = 9
        await directory.report(Report(places[1], held={"w": 0}), None)
        clock.now = 11
        assert await directory.versions("") == {}
        assert await directory.reserve("w", 0, "b") == (2, 0)  # the lost version does not come back
        assert await directory.reserve("w", 0, "b") == (2, 0)  # Ray has repeated the call
        assert await directory.reserve("w", 0, "c") == (0, 0)  # another process publishes after this version
        await directory.give_up("w", 2)
        assert await directory.reserve("w", 0, "d") == (3, 0)

    asyncio.run(steps())


def test_a_removal_leaves_what_is_being_published() -> None:
    import asyncio

    async def steps() -> None:
        directory = Directory("token", False, Clock())
        place = Place("a", "a", "", "")
        await directory.report(Report(place, held={"w": (await directory.reserve("w", None, "a"))[0]}), None)
        version, _ = await directory.reserve("w", None, "b")
        assert await directory.remove("w")
        assert await directory.versions("") == {}
        assert await directory.report(Report(place, held={"w": version}, number=2), None) == {"w": 2}
        assert await directory.find("w") == (2, [place])
        await directory.report(Report(place, held={"w": 1}, number=1), None)  # it comes late
        assert await directory.find("w") == (2, [place])

    asyncio.run(steps())


def test_of_two_nodes_that_do_not_use_a_version_one_keeps_it() -> None:
    import asyncio

    async def steps() -> None:
        directory = Directory("token", False, Clock())
        for name in "ab":
            await directory.report(Report(Place(name, name, "", name), held={"w": 3}), None)
        assert await directory.release("a", "w")
        assert not await directory.release("b", "w")
        await directory.report(
            Report(Place("a", "a", "", "a"), held={"w": 3}, number=1), None
        )  # it has not dropped it yet
        assert not await directory.release("b", "w")
        assert (await directory.find("w"))[1] == [Place("b", "b", "", "b")]

    asyncio.run(steps())


def test_a_new_directory_learns_what_the_servers_have() -> None:
    import asyncio

    async def steps() -> None:
        before, now = time.monotonic(), time.time()
        directory = Directory("token", True)
        find = asyncio.ensure_future(directory.find("w"))
        await directory.report(Report(Place("a", "a", "", ""), held={"w": 7}), None)
        assert (await find)[0] == 7
        assert time.monotonic() - before >= 2.9
        version, newest = await directory.reserve("w", None, "a")
        assert newest == 7
        assert version >= int(now)  # above all that the directory before may have given away
        assert await directory.reserve("w", None, "b") == (version + 1, 7)

    asyncio.run(steps())


class EndingReplicas:
    """Two replicas that are ending. `begun`: whether they ended the call after the function had begun."""

    repeatable = frozenset({"repeatable"})

    def __init__(self, begun: bool) -> None:
        self.begun = begun
        self.calls = 0
        self.last_receipt = None

    def refresh(self, wait: float) -> None: ...

    def ordered(self) -> list[tuple[Place, EndingReplicas]]:
        return [(Place(id, "node", "url", "socket"), self) for id in ("one", "two")]

    def options(self, **options: object) -> EndingReplicas:
        return self

    def call(self, method: str) -> str:
        self.calls += 1
        if self.calls > 1:
            return "second"
        error = errors.ShuttingDown("ending")
        error.may_have_run = self.begun
        raise error


@pytest.mark.parametrize(("begun", "method"), [(False, "other"), (True, "repeatable")])
def test_a_call_that_an_ending_replica_rejects_goes_on_with_another(begun: bool, method: str) -> None:
    assert fleet.Handle("ending", EndingReplicas(begun)).call(method) == "second"  # type: ignore[arg-type]


def test_a_call_that_an_ending_replica_had_begun_does_not_run_twice() -> None:
    replicas = EndingReplicas(begun=True)
    with pytest.raises(errors.ShuttingDown) as caught:
        fleet.Handle("ending", replicas).call("other")  # type: ignore[arg-type]
    assert caught.value.may_have_run and replicas.calls == 1
