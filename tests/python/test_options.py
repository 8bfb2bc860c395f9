"""The options of a server: keywords of start(), flags and environment of `python -m shared_tensor.server`."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import shared_tensor
from shared_tensor import _core, _options, errors
from shared_tensor.server import SharedTensorServer

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "docs/options.md"


@pytest.fixture
def own() -> Iterator[shared_tensor.SharedTensorProvider]:
    """A provider of this process, with one function."""
    provider = shared_tensor.SharedTensorProvider(execution_mode="server")
    provider.share(name="size")(len)
    yield provider
    provider.stop(0)


def limits(url: str) -> Any:
    with shared_tensor.Client(url) as client:
        return client.info()["limits"]


def test_each_option_of_the_page_with_a_member_is_a_keyword() -> None:
    rows = re.findall(r"^\| `--([a-z-]+)` \|.*\| `[a-z_.]+` \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 50 and rows == [info.name for info in _core.list_server_options()]
    for info in _core.list_server_options():
        if not info.is_list:
            given = {_options.keyword(info.name): info.default_value}
            assert _options.option_texts(given) == list(given.items())


@pytest.mark.parametrize(
    ("keyword", "value", "limit", "shown"),
    [
        ("max_kept_bytes", "1GiB", "max_kept_bytes", 2**30),
        ("max_kept_bytes", "1G", "max_kept_bytes", 2**30),
        ("max_kept_bytes", 2**30, "max_kept_bytes", 2**30),
        ("max_tasks", 3, "max_tasks", 3),
        ("max_tasks", "3", "max_tasks", 3),
        ("max_wait", 1.5, "max_wait_ms", 1500),
        ("max_wait", 2, "max_wait_ms", 2000),
        ("max_wait", "2m", "max_wait_ms", 120_000),
        ("timeout", "2s", "call_timeout_ms", 2000),
        ("timeout", 0.5, "call_timeout_ms", 500),
        ("drain_time", 0.0001, "drain_time_ms", 1),
        ("max_tasks", None, "max_tasks", 10_000),
    ],
)
def test_a_keyword_sets_the_limit_that_the_server_shows(
    own: shared_tensor.SharedTensorProvider, keyword: str, value: Any, limit: str, shown: int
) -> None:
    assert limits(own.start(0, **{keyword: value}))[limit] == shown


def test_the_same_keywords_set_the_options_of_the_first_server(own: shared_tensor.SharedTensorProvider) -> None:
    with SharedTensorServer(port=0, provider=own, max_tasks=3) as server:
        assert limits(server.url)["max_tasks"] == 3


def test_a_request_beyond_the_limit_of_its_provider_is_rejected(own: shared_tensor.SharedTensorProvider) -> None:
    with shared_tensor.Client(own.start(0, max_json_bytes="1K")) as client:
        assert client.call("size", "a" * 100) == 100
        with pytest.raises(errors.RpcError, match="the body is larger than this server takes"):
            client.call("size", "a" * 2000)


def test_a_list_and_a_flag_have_their_effect(own: shared_tensor.SharedTensorProvider) -> None:
    calls: list[int] = []
    own.share(name="count", cached=True)(lambda: calls.append(1))
    url = own.start(0, "127.0.0.1", allowed_host=["one.example.org", "two.example.org"], cache=False)
    with shared_tensor.Client(url) as client:
        client.call("count")
        client.call("count")
    assert len(calls) == 2
    port = int(url.rpartition(":")[2])
    statuses = [status_for_host(port, host) for host in ("one.example.org", "two.example.org", "three.example.org")]
    assert statuses == [200, 200, 403]


def status_for_host(port: int, host: str) -> int:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/healthz", headers={"Host": host})
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_provider_serves_its_dashboard_unless_it_is_turned_off(own: shared_tensor.SharedTensorProvider) -> None:
    def status(url: str) -> int:
        try:
            with urllib.request.urlopen(url + "/", timeout=30) as page:
                return page.status if b"dashboard/app.js" in page.read() else 0
        except urllib.error.HTTPError as error:
            return error.code

    assert status(own.start(0)) == 200
    own.stop(0)
    assert status(own.start(0, dashboard=False)) == 404


def test_without_a_host_it_serves_on_its_unix_socket_only(
    own: shared_tensor.SharedTensorProvider, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "socket"
    url = own.start(host="", unix_socket=str(path))
    assert url == f"unix:{path}"
    with shared_tensor.Client(url) as client:
        assert client.call("size", "abc") == 3


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_taks": 1}, TypeError, "max_taks: no such option; the nearest is max_tasks"),
        ({"tls_cert": "x"}, TypeError, "tls_cert: no such option; the nearest is tls_certificate"),
        ({"log_level": "info"}, TypeError, "log_level: no such option"),
        ({"max_tasks": 0}, ValueError, 'max_tasks: must be an integer from 1 to 1000000, not "0"'),
        ({"max_tasks": True}, ValueError, "max_tasks: must be an integer"),
        ({"max_tasks": 1.5}, ValueError, "max_tasks: must be an integer"),
        ({"max_tasks": [1, 2]}, TypeError, "max_tasks is a list"),
        ({"max_kept_bytes": "1GB"}, ValueError, "max_kept_bytes: must be a size in bytes such as"),
        ({"max_wait": "30"}, ValueError, "max_wait: must be a time such as"),
        ({"max_wait": float("inf")}, ValueError, "max_wait: must be a time such as"),
        ({"max_wait": -1}, ValueError, "max_wait: must be a time such as"),
        ({"workers": -1}, ValueError, "workers: must be an integer from 0 to 4096"),
        ({"port": 70_000}, ValueError, "port: must be an integer from 0 to 65535"),
        ({"allowed_host": [{}]}, TypeError, "allowed_host is a dict"),
    ],
    ids=str,
)
def test_a_bad_option_is_named_with_the_cure(
    own: shared_tensor.SharedTensorProvider, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        own.start(**{"port": 0, **options})
    assert text in str(raised.value)
    assert own.start(0), "it can serve with other options"


def test_the_drain_time_of_start_is_that_of_stop() -> None:
    provider = shared_tensor.SharedTensorProvider(execution_mode="server")

    @provider.share()
    def slow(context: shared_tensor.Context) -> None:
        while True:
            context.sleep(0.01)
            context.check_cancelled()

    with shared_tensor.Client(provider.start(0, drain_time=0)) as client:
        task = client.submit("slow")
        while task.status().state != "running":
            pass
        provider.stop()  # would take the default of 10 s


# ---- python -m shared_tensor.server


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "shared_tensor.server", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(HERE), "COLUMNS": "120", **environment},
    )


def test_flags_set_the_options_of_a_provider_in_its_own_process(start_provider: Any) -> None:
    process = start_provider(
        "functions:provider",
        *("--max-tasks", "1", "--max-json-bytes=1K", "--max-wait", "2s", "--no-cache"),
        *("--service-name", "mine", "--service-version=8", "--drain-time", "20s"),
    )
    with shared_tensor.Client(process.url) as client:
        info = client.info()
        shown = {name: info["limits"][name] for name in ("max_tasks", "max_json_bytes", "max_wait_ms", "drain_time_ms")}
        assert shown == {"max_tasks": 1, "max_json_bytes": 1024, "max_wait_ms": 2000, "drain_time_ms": 20_000}
        assert (info["service"]["name"], info["service"]["version"]) == ("mine", "8")
        with pytest.raises(errors.RpcError, match="the body is larger than this server takes"):
            client.call("echo", "a" * 2000)
        running = client.submit("steps", seconds=30)
        with pytest.raises(errors.ServerBusy):
            client.submit("steps", seconds=30)
        running.cancel()
    assert process.stop() == 0


def test_a_flag_wins_over_the_environment(start_provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARED_TENSOR_MAX_TASKS", "5")
    monkeypatch.setenv("SHARED_TENSOR_MAX_WAIT", "5s")
    monkeypatch.setenv("SHARED_TENSOR_WORKERS", "3")
    monkeypatch.setenv("SHARED_TENSOR_INSECURE", "no")
    shown = limits(start_provider("functions:provider", "--max-tasks", "6").url)
    assert (shown["max_tasks"], shown["max_wait_ms"], shown["workers"]) == (6, 5000, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--max-taks", "1"], "--max-taks: no such option; the nearest is --max-tasks; --help-all lists the options"),
        (["--max-taks=1"], "--max-taks: no such option; the nearest is --max-tasks"),
        (["--ready-fiel", "x"], "the nearest is --ready-file"),
        (["--no-cach"], "the nearest is --no-cache"),
        (["other:provider"], "other:provider: unexpected argument"),
        (["--max-tasks", "0"], '--max-tasks: must be an integer from 1 to 1000000, not "0"'),
        (["--port", "many"], "--port: must be an integer"),
        (["--max-wait", "5"], "--max-wait: must be a time such as"),
    ],
    ids=str,
)
def test_a_bad_flag_is_an_error_before_anything_is_imported(arguments: list[str], text: str) -> None:
    done = command("no_such_module:provider", *arguments)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_a_bad_variable_is_named() -> None:
    done = command("no_such_module:provider", SHARED_TENSOR_MAX_TASKS="many")
    assert done.returncode == 2 and "SHARED_TENSOR_MAX_TASKS: must be an integer" in done.stderr


def test_what_cannot_be_served_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments, text in (
            (["no_such_module:provider"], f"there is no module no_such_module in {os.getcwd()} or on Python's path"),
            (["functions:nothing"], "functions:nothing is no SharedTensorProvider: name it as package.module:provider"),
            (["functions:provider", "--port", str(port)], f"cannot listen on 127.0.0.1:{port}: Address already in use"),
        ):
            done = command(*arguments)
            assert (done.returncode, done.stderr) == (1, f"shared_tensor.server: {text}\n")


def test_the_help_has_the_common_options_or_all() -> None:
    common, everything = command("--help").stdout, command("--help-all").stdout
    for info in _core.list_server_options():
        assert f"--{info.name}" in everything
        assert (re.search(rf"--{info.name}\b(?!-)", common) is not None) == info.common, info.name
    assert "--help-all" in common and "docs/options.md" in common
